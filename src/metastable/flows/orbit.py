"""Exact orbits of the zero-temperature flow x' = P_x M x/|B^T x|, M = V B^T (Z1).

    x(t) = e^{tau M} x_0 / |e^{tau M} x_0|,     dt/dtau = |B^T x(tau)|.

The orbit is projectively linear; only its clock tau(t) is not, and every token has its own. The clock is
integrated spectrally on panels of tau (Chebyshev nodes, the exponentials of M precomputed), so nothing is
diagonalised: Jordan blocks and complex pairs are ordinary matrices here, and the error is that of rounding.
A panel on which |B^T x| is not resolved is halved for the tokens concerned. Where B^T is a multiple b of an
isometry, tau = t/b.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.polynomial import chebyshev
from scipy.linalg import expm
from torch import Tensor

from metastable.errors import InvalidInput, SolveError

NODES = 18
"""Chebyshev nodes per panel."""
RESOLVED = 2e-14
"""Largest relative size of the last two Chebyshev coefficients of |B^T x| on a panel that counts as resolved."""
PANELS = 200_000
"""Most panels of one call."""
PAIRS = 1 << 16
"""(token, time) pairs that are interpolated at once, so that their coefficients stay in the cache."""


def orbit(
    M: Float[Tensor, "d d"], B: Float[Tensor, "d d"], points: Float[Tensor, "n d"], times: Any
) -> Float[Tensor, "m n d"]:
    """Points x_i(t_k) of the zero-temperature flow through the unit rows of `points`, exact to rounding.

    times: (m,), >= 0, in any order. The rows at time 0 are returned bit for bit.

    >>> M, I = torch.diag(torch.tensor([2.0, 1.0], dtype=torch.float64)), torch.eye(2, dtype=torch.float64)
    >>> x = orbit(M, I, torch.tensor([[0.6, 0.8]], dtype=torch.float64), [0.0, math.log(4 / 3)])
    >>> [round(v, 12) for v in x[1, 0].tolist()]
    [0.707106781187, 0.707106781187]
    """
    return _propagate(M, B, points, times)[0]


def orbit_clock(
    M: Float[Tensor, "d d"], B: Float[Tensor, "d d"], points: Float[Tensor, "n d"], times: Any
) -> Float[Tensor, "m n"]:
    """The clock tau_i(t_k) of every token: the solution of dtau/dt = 1/|B^T x_i(tau)|, tau_i(0) = 0."""
    return _propagate(M, B, points, times)[1]


def _propagate(M: Tensor, B: Tensor, points: Tensor, times: Any) -> tuple[Tensor, Tensor]:
    clock = _validated_times(times)
    last = float(clock.max()) if len(clock) else 0.0
    n, d = points.shape
    if M.shape != (d, d) or B.shape != (d, d):
        raise InvalidInput(f"points have {d} columns but M and B have shapes {tuple(M.shape)} and {tuple(B.shape)}")
    x0 = points.detach().to(torch.float64)
    M, B = (matrix.detach().to(x0) for matrix in (M, B))
    spread = torch.linalg.svdvals(B)
    if float(spread[-1]) <= d * torch.finfo(torch.float64).eps * float(spread[0]):
        raise InvalidInput(
            "the zero-temperature flow needs an invertible B (it divides by |B^T x|), got a B with singular values "
            f"from {float(spread[-1]):.3g} to {float(spread[0]):.3g}"
        )
    # A multiple of I does not move the orbit; without it the panels can be as long as the spread of M allows.
    shifted = M - (torch.trace(M) / d) * torch.eye(d, dtype=x0.dtype, device=x0.device)
    x = torch.empty(len(clock), n, d, dtype=x0.dtype, device=x0.device)
    tau = torch.empty(len(clock), n, dtype=x0.dtype, device=x0.device)
    size = float(torch.linalg.matrix_norm(shifted, ord=2))
    still = size <= 4 * torch.finfo(torch.float64).eps * float(torch.linalg.matrix_norm(M, ord=2))
    if not still and last * size > PANELS * float(spread[0]) / 2:
        raise SolveError(
            f"the zero-temperature orbit needs more than {PANELS} panels up to t = {last:g}; ask for earlier times"
        )
    if still:
        x[:] = x0
        tau[:] = clock[:, None].to(x0) / torch.linalg.vector_norm(x0 @ B, dim=1)
    elif float(spread[0] - spread[-1]) <= 4 * torch.finfo(torch.float64).eps * float(spread[0]):
        b = float(spread.mean())
        for k, t in enumerate(clock.tolist()):
            x[k], tau[k] = x0 if t == 0 else _moved_along(shifted, x0, t / b), t / b
    else:
        order = torch.argsort(clock, stable=True)
        panels = _Panels(shifted, B, x0, clock[order], 0.5 / size)
        panels.run()
        x[order], tau[order] = panels.x, panels.tau
    return x, tau


def _moved_along(M: Tensor, x: Tensor, tau: float) -> Tensor:
    """e^{tau M} x/|.| row by row, in factors that cannot overflow."""
    parts = max(1, math.ceil(tau * float(torch.linalg.matrix_norm(M, ord=2)) / 300))
    if parts > PANELS:
        raise _endless(tau)
    factor = torch.from_numpy(expm(tau / parts * M.cpu().numpy())).to(x)
    for _ in range(parts):
        x = x @ factor.T
        x = x / torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return x


class _Panels:
    """The way of all tokens through panels of tau; state lives here and nowhere else.

    Not a loop over time steps: every token has a clock tau of its own, and a panel is not a step but a stretch on
    which the closed solution is tabulated.
    """

    def __init__(self, M: Tensor, B: Tensor, x0: Tensor, times: Tensor, width: float) -> None:
        n, d = x0.shape
        self.M, self.B, self.width = M, B, width
        self.times = times.to(x0)
        self.start = x0.clone()
        self.elapsed = torch.zeros(n, dtype=x0.dtype, device=x0.device)
        self.clock = torch.zeros_like(self.elapsed)
        self.x = torch.empty(len(times), n, d, dtype=x0.dtype, device=x0.device)
        self.tau = torch.zeros(len(times), n, dtype=x0.dtype, device=x0.device)
        self.x[self.times == 0] = x0
        self.exponentials: dict[int, Tensor] = {}
        # Nodes on [-1, 1] with both ends; values -> Chebyshev coefficients -> those of the integral from -1.
        nodes = chebyshev.chebpts2(NODES)
        to_coefficients = np.linalg.inv(chebyshev.chebvander(nodes, NODES - 1))
        integral = np.stack([chebyshev.chebint(row, lbnd=-1) for row in np.eye(NODES)])
        self.nodes = nodes
        self.to_coefficients = torch.from_numpy(to_coefficients).to(x0)
        self.integral = torch.from_numpy(integral.T.copy()).to(x0)

    def run(self) -> None:
        last = float(self.times[-1])
        # No token spends more time in a panel than its width times |B|.
        if last > PANELS * self.width * float(torch.linalg.matrix_norm(self.B, ord=2)):
            raise _endless(last)
        active = torch.nonzero(self.elapsed < last)[:, 0]
        panels = 0
        while len(active):
            self.advance(active, 0)
            active = active[self.elapsed[active] < last]
            panels += 1
            if panels > PANELS:
                raise _endless(last)

    def advance(self, tokens: Tensor, level: int) -> None:
        """Carry the tokens over one panel of width/2^level and record the times that fall into it."""
        if level not in self.exponentials:
            steps = self.width / 2**level * (self.nodes + 1) / 2
            matrix = self.M.cpu().numpy()
            self.exponentials[level] = torch.from_numpy(np.stack([expm(s * matrix).T for s in steps])).to(self.M)
        y = torch.matmul(self.start[tokens], self.exponentials[level])  # (nodes, tokens, d)
        length = torch.linalg.vector_norm(y, dim=2)
        speed = torch.linalg.vector_norm(y @ self.B, dim=2) / length
        coefficients = self.to_coefficients @ speed
        tail = coefficients[-2:].abs().amax(dim=0) > RESOLVED * coefficients[0].abs()
        if level < 40 and bool(tail.any()):
            for _ in range(2):
                self.advance(tokens[tail], level + 1)
            good = ~tail
            if not bool(good.any()):
                return
            tokens, y, coefficients, length = tokens[good], y[:, good], coefficients[:, good], length[:, good]
        half = self.width / 2 ** (level + 1)
        elapsed = half * (self.integral @ coefficients)  # Chebyshev coefficients of t(tau) - t(start)
        before = self.elapsed[tokens]
        after = before + elapsed.sum(dim=0)
        self.record(tokens, before, after, half, coefficients, elapsed, y)
        self.elapsed[tokens] = after
        self.clock[tokens] += 2 * half
        self.start[tokens] = y[-1] / length[-1, :, None]

    def record(
        self, tokens: Tensor, before: Tensor, after: Tensor, half: float, speed: Tensor, elapsed: Tensor, y: Tensor
    ) -> None:
        """Interpolate every requested time in (before, after] of every token."""
        first = torch.searchsorted(self.times, before, right=True)
        stop = torch.searchsorted(self.times, after, right=True)
        count = stop - first
        if not bool(count.any()):
            return
        shape = torch.tensordot(self.to_coefficients, y, dims=([1], [0]))  # (nodes, tokens, d)
        local = torch.repeat_interleave(torch.arange(len(tokens), device=count.device), count)
        offset = torch.arange(len(local), device=count.device) - torch.repeat_interleave(
            torch.cumsum(count, 0) - count, count
        )
        index = first[local] + offset
        for block in torch.arange(len(local), device=count.device).split(PAIRS):
            token, k = local[block], index[block]
            target = self.times[k] - before[token]
            s = _inverse(elapsed[:, token], half * speed[:, token], target, (after - before)[token])
            point = _clenshaw(shape[:, token], s[:, None])
            row = tokens[token]
            self.x[k, row] = point / torch.linalg.vector_norm(point, dim=1, keepdim=True)
            self.tau[k, row] = self.clock[row] + half * (s + 1)


def _inverse(integral: Tensor, derivative: Tensor, target: Tensor, total: Tensor) -> Tensor:
    """s in [-1, 1] with sum_k integral_k T_k(s) = target: Newton from the chord (the derivative is positive)."""
    s = 2 * target / total - 1
    for _ in range(12):
        step = (_clenshaw(integral, s) - target) / _clenshaw(derivative, s)
        s = torch.clamp(s - step, -1.0, 1.0)
        if float(step.abs().max()) < 1e-14:
            break
    return s


def _clenshaw(coefficients: Tensor, s: Tensor) -> Tensor:
    """sum_k c_k T_k(s) by Clenshaw's recurrence; coefficients (K, ...), s broadcast against the rest."""
    above = torch.zeros_like(coefficients[0])
    here = coefficients[-1].clone()
    for k in range(coefficients.shape[0] - 2, 0, -1):
        here, above = coefficients[k] + 2 * s * here - above, here
    return coefficients[0] + s * here - above


def _endless(t: float) -> SolveError:
    return SolveError(
        f"the zero-temperature orbit needs more than {PANELS} panels up to t = {t:g}; ask for earlier times or for "
        "a better conditioned B"
    )


def _validated_times(times: Any) -> Tensor:
    clock = torch.as_tensor(np.atleast_1d(np.asarray(times, dtype=np.float64)))
    if clock.ndim != 1:
        raise InvalidInput(f"times must be a number or a sequence of numbers, got shape {tuple(clock.shape)}")
    bad = ~(torch.isfinite(clock) & (clock >= 0))
    if bool(bad.any()):
        raise InvalidInput(f"t must be finite and >= 0, got {float(clock[bad][0])}")
    return clock
