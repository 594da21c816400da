"""Fourier transforms between the fine grid of (theta, phi), which tokens touch, and coarse nodes
(`sphere.grid`).

Both grids lie on the torus that covers the sphere twice, theta once around. Masses on the fine grid become
weights of coarse nodes, with sum_b w_b f(k_b) = sum_j m_j f(k_j) for all smooth f; sums at coarse nodes become
fields on the fine grid, from which tokens interpolate.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import fft

from metastable.attention.sphere.gridding import columns_of, rows_of, sort_tokens, spreader
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

    def work(first: int, last: int) -> None:
        x, y, z = (points[first:last] if matrix is None else points[first:last] @ matrix).T
        theta[first:last] = np.arctan2(np.sqrt(x * x + y * y), z) * scale
        around = np.arctan2(y, x) * scale
        around[around < 0.0] += fine
        phi[first:last] = around

    over_rows(work, n, cost=100.0 * n)
    order, row_start = np.empty(n, dtype=np.int64), np.empty(fine // 2 + 3, dtype=np.int64)
    sorted_theta, sorted_phi = np.empty(n), np.empty(n)
    sort_tokens(theta, phi, fine, order, sorted_theta, sorted_phi, row_start)
    return Placed(order, sorted_theta, sorted_phi, row_start)


def spectra(tokens: Placed, masses: np.ndarray, kept: Window, n: int) -> list[np.ndarray]:
    """c times (M, N/2): Fourier coefficients of masses (n, c) on the fine grid, as far as N coarse nodes tell them
    apart.
    """
    fine, width, count = kept.fine, kept.width, masses.shape[1]
    grids = np.zeros((count, rows_of(fine, width), columns_of(fine, width)))
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
    coarse /= np.conj(_symbol(kept, n))
    weights = fft.irfft(fft.ifft(coarse, axis=0), n=n)
    return weights[: n // 2] + np.roll(weights[: n // 2 - 1 : -1], n // 2, axis=1)


def fine_field(along: np.ndarray, kept: Window, out: np.ndarray) -> float:
    """Fills the padded fine grid with a field whose transforms along N/2 rings are given, (N/2, N/2) of them.

    Returns sum |T_lm| (E_l + E_m): how far interpolation of the field errs at most.
    """
    n = 2 * len(along)
    fine, half = kept.fine, kept.width // 2
    # On the other side of a pole, phi is turned by pi.
    torus = np.concatenate((along, along[::-1] * (1.0 - 2.0 * (np.arange(n // 2) % 2))))
    modes = fft.fft(torus, axis=0)
    size = np.abs(modes) * (2.0 / n**2)  # both signs of m
    rough = size.sum(axis=1) @ kept.error[_frequencies(n)] + size.sum(axis=0) @ kept.error[: n // 2]
    modes = fft.ifft(_resized(modes / (_symbol(kept, n) * n**2), fine), axis=0, norm="forward")
    rows_at = (np.arange(rows_of(fine, kept.width)) - half) % fine
    out[:, half : half + fine] = fft.irfft(modes[rows_at], n=fine, norm="forward")
    out[:, :half] = out[:, fine : fine + half]
    out[:, fine + half :] = out[:, half : 2 * half + 1]
    return float(rough)


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


def _symbol(kept: Window, n: int) -> np.ndarray:
    """(N, N/2): e^{il pi/N} psi_l psi_m, for nodes theta that begin half a step from the pole."""
    along = kept.transform[_frequencies(n)] * np.exp(1j * math.pi / n * np.fft.fftfreq(n, 1.0 / n))
    return along[:, None] * kept.transform[: n // 2]


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
