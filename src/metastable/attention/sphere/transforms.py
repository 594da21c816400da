"""Fourier transforms between the fine grid of (theta, phi), which tokens touch, and coarse nodes
(`sphere.grid`).

Both grids lie on the torus that covers the sphere twice, theta once around. Masses on the fine grid become
weights of coarse nodes, with sum_b w_b f(k_b) = sum_j m_j f(k_j) for all smooth f; sums at coarse nodes become
fields on the fine grid, from which tokens interpolate.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from scipy import fft

from metastable.attention.exp2 import REDUCTION
from metastable.attention.sphere.angles import polar
from metastable.attention.sphere.gridding import columns_of, rows_of, sort_tokens, spreader
from metastable.attention.sphere.kept import kept_array
from metastable.attention.sphere.window import Window
from metastable.threads import over_rows


class Placed(NamedTuple):
    """Tokens sorted by the first node they touch; theta and phi in steps of the fine grid."""

    order: np.ndarray
    theta: np.ndarray
    phi: np.ndarray
    row_start: np.ndarray
    """Where each row of bins begins."""


def placed(points: np.ndarray, fine: int, matrix: np.ndarray | None = None) -> Placed:
    """The directions of points (n, 3), or of points times a matrix, on the fine grid."""
    n, scale = len(points), 0.5 * fine / math.pi
    theta, phi = np.empty(n), np.empty(n)

    turn = np.eye(3) if matrix is None else np.ascontiguousarray(matrix)

    def work(first: int, last: int) -> None:
        polar(points[first:last], turn, scale, theta[first:last], phi[first:last])

    over_rows(work, n, cost=10.0 * n)
    order, row_start = np.empty(n, dtype=np.int64), np.empty(fine // 2 + 3, dtype=np.int64)
    sorted_theta, sorted_phi = np.empty(n), np.empty(n)
    sort_tokens(theta, phi, fine, order, sorted_theta, sorted_phi, row_start)
    return Placed(order, sorted_theta, sorted_phi, row_start)


def spectra(tokens: Placed, masses: np.ndarray, kept: Window, n: int) -> list[np.ndarray]:
    """c times (M, N/2): Fourier coefficients of masses (n, c) on the fine grid, as far as N coarse nodes tell them
    apart.
    """
    fine, width, count = kept.fine, kept.width, masses.shape[1]
    grids = kept_array("masses", (count, rows_of(fine, width), columns_of(fine, width)))
    grids[:] = 0.0
    spread = spreader(width, len(kept.table) - 1, count)
    height = max(width, -(-(fine // 2 + 2) // 32))
    starts = np.append(tokens.row_start[:-1:height], tokens.row_start[-1])
    for parity in range(2):  # strips that touch the same nodes never run at once
        strips = range(parity, len(starts) - 1, 2)

        def work(first: int, last: int, strips: range = strips) -> None:
            for strip in strips[first:last]:
                part = starts[strip], starts[strip + 1]
                spread(tokens.theta, tokens.phi, tokens.order, masses, *part, kept.table, grids)

        over_rows(work, len(strips), cost=100.0 * count * len(tokens.order))
    return [_transformed(grid, kept, n) for grid in grids]


def _transformed(grid: np.ndarray, kept: Window, n: int) -> np.ndarray:
    """(M, N/2): Fourier coefficients of a padded fine grid that covers the sphere once."""
    fine, half = kept.fine, kept.width // 2
    around = grid[:, half : half + fine].copy()
    around[:, fine - half :] += grid[:, :half]
    around[:, : half + 1] += grid[:, half + fine :]
    kept_modes = fft.rfft(around)[:, : n // 2]
    torus = np.zeros((fine, n // 2), dtype=np.complex128)
    torus[: len(grid) - half] = kept_modes[half:]
    torus[fine - half :] += kept_modes[:half]
    return fft.fft(torus, axis=0)


def node_weights(modes: np.ndarray, kept: Window, n: int) -> np.ndarray:
    """(N/2, N): weights of coarse nodes that stand for all keys, from their `spectra` for N nodes or more."""
    coarse = _resized(modes[:, : n // 2], n)
    along, across = _inverse_symbol(kept, n)
    coarse *= np.conj(along)[:, None]
    coarse *= across
    weights = fft.irfft(fft.ifft(coarse, axis=0, overwrite_x=True), n=n)
    return weights[: n // 2] + np.roll(weights[: n // 2 - 1 : -1], n // 2, axis=1)


def fine_field(along: np.ndarray, kept: Window, out: np.ndarray) -> float:
    """Fills the padded fine grid with a field whose transforms along N/2 rings are given, (N/2, N/2) of them.

    Returns sum |T_lm| (E_l + E_m): how far interpolation of the field errs at most.
    """
    n = 2 * len(along)
    fine, half = kept.fine, kept.width // 2
    torus = kept_array("coarse torus", (n, n // 2), np.complex128)
    _unfold(along, torus)
    modes = kept_array("fine torus", (fine, n // 2), np.complex128)
    modes[n // 2 : fine - n // 2 + 1] = 0.0
    rows, columns = _inverse_symbol(kept, n)
    rough = _refine(fft.fft(torus, axis=0, overwrite_x=True), rows / n**2, columns, kept.error, modes)
    modes = fft.ifft(modes, axis=0, norm="forward", overwrite_x=True)
    rows_at = (np.arange(rows_of(fine, kept.width)) - half) % fine
    out[:, half : half + fine] = fft.irfft(modes[rows_at], n=fine, norm="forward")
    out[:, :half] = out[:, fine : fine + half]
    out[:, fine + half :] = out[:, half : 2 * half + 1]
    return rough * (2.0 / n**2)  # both signs of m


@njit(cache=True, nogil=True)
def _unfold(along: Any, torus: Any) -> None:
    """(N, M): transforms along N/2 rings (N/2, M) on the whole torus; beyond a pole, phi is turned by pi."""
    last = len(torus) - 1
    for ring in range(len(along)):
        for m in range(along.shape[1]):
            value = along[ring, m]
            torus[ring, m] = value
            torus[last - ring, m] = value if m % 2 == 0 else -value


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def _refine(modes: Any, rows: Any, columns: Any, error: Any, out: Any) -> float:
    """Fills out with modes (N, M) times rows and columns, without |l| = N/2; sum |modes_lm| (E_l + E_m)."""
    n, shift, rough = len(modes), len(out) - len(modes), 0.0
    for ring in range(n):
        frequency = min(ring, n - ring)
        of_row, real, imaginary = 0.0, rows[ring].real, rows[ring].imag
        to = out[ring if 2 * ring < n else ring + shift]
        kept = 2 * ring != n
        for m in range(modes.shape[1]):
            x, y = modes[ring, m].real, modes[ring, m].imag
            of_row += np.sqrt(x * x + y * y) * (error[frequency] + error[m])
            if kept:
                to[m] = complex(x * real - y * imaginary, x * imaginary + y * real) * columns[m]
        rough += of_row
    return rough


def slopes(values: np.ndarray) -> np.ndarray:
    """(N/2, 3, N): the gradient along the sphere, at the nodes of N/2 rings, of a function known there, (N/2, N).

    On the torus it is a Fourier series, and both of its angles are differentiated term by term.
    """
    n = values.shape[1]
    torus = np.concatenate((values, np.roll(values[::-1], n // 2, axis=1)))
    modes = 1j * np.arange(n // 2 + 1)
    along = fft.irfft(modes[:, None] * fft.rfft(torus, axis=0), n=n, axis=0)[: n // 2]
    theta = (np.arange(n // 2)[:, None] + 0.5) * (2.0 * math.pi / n)
    around = fft.irfft(modes * fft.rfft(values), n=n) / np.sin(theta)
    phi = np.arange(n) * (2.0 * math.pi / n)
    level = along * np.cos(theta)
    return np.stack(
        (
            level * np.cos(phi) - around * np.sin(phi),
            level * np.sin(phi) + around * np.cos(phi),
            -along * np.sin(theta),
        ),
        axis=1,
    )


def _inverse_symbol(kept: Window, n: int) -> tuple[np.ndarray, np.ndarray]:
    """(N,) and (N/2,): 1/(e^{il pi/N} psi_l) and 1/psi_m, for nodes theta that begin half a step from the pole."""
    along = np.exp(-1j * math.pi / n * np.fft.fftfreq(n, 1.0 / n)) / kept.transform[_frequencies(n)]
    return along, 1.0 / kept.transform[: n // 2]


def _frequencies(n: int) -> np.ndarray:
    """|l| of the rows of a transform: 0, 1, ..., n/2, ..., 1."""
    return np.minimum(np.arange(n), n - np.arange(n))


def _resized(modes: np.ndarray, n: int) -> np.ndarray:
    """Rows of a transform cut off or filled with zeros to n; the mode N/2 of the smaller is left out."""
    half = min(n, len(modes)) // 2
    out = np.zeros((n, modes.shape[1]), dtype=np.complex128)
    out[:half] = modes[:half]
    out[1 - half :] = modes[1 - half :]
    return out
