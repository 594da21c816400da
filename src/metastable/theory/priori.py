"""The bound before any run: masses of caps -> distance of m_beta from e -> drift of every token -> W2 (S4).

The defect of a token is at most ||V|| |m_beta - e|, and |m_beta - e| is bounded by the mass that every cap holds. A
cap of angle a at time s holds at least what the smallest cap of angle (a - eta) e^{-L_0 s} held at time 0: the
zero-temperature flow shrinks no distance by more than e^{L_0 s}, and no token is farther than eta(s) from its
zero-temperature orbit. As eta in turn is bounded by the defect, both are computed together.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metastable.arguments import integer, number
from metastable.flows.orbit import orbit
from metastable.sphere import uniform
from metastable.theory.bound import limits, orbit_angles
from metastable.theory.contraction import Push
from metastable.theory.laplace import cap_moment
from metastable.theory.spectrum import Spectrum, spectrum
from metastable.theory.stability import LARGEST_EXPONENT, growth_constant, propagated
from metastable.theory.token_angles import comparison, distance, token_angles
from metastable.theory.tokens import check_weights, read_times, tokens
from metastable.weights import AttentionWeights

PANELS = 128
"""Intervals of time on which the defect is bounded by its value at the end; more only sharpen the bound."""
ATTEMPTS = 12
"""Guesses of the drift at the end of a panel, each a tenth above what the last one implied."""


@dataclass(frozen=True, eq=False)
class PrioriBound:
    """W2(rho_t^beta, rho_t^0) <= eta(t),  eta' = L_0 eta + ||V|| laplace(t, eta), and with it W2 to the limit (S4).

    Explicit and pessimistic: eta is a bound for every token at once. It is as rigorous as L_0 (a search) and the
    smallest masses of caps (over a sample of directions) are what they claim to be.
    """

    spectrum: Spectrum
    points: Tensor
    mass: Tensor
    L0: float
    kappa: float
    V_norm: float
    angles: np.ndarray
    smallest_mass: np.ndarray

    def __repr__(self) -> str:
        return f"PrioriBound({len(self.points)} tokens, L0 = {self.L0:.4g})"

    def laplace(self, s: float, eta: float = 0.0) -> float:
        """Bound of |m_beta - e| at time s, tokens being within eta of their zero-temperature orbits (L6)."""
        reach = eta + self.angles * math.exp(min(self.L0 * s, LARGEST_EXPONENT))
        return cap_moment(self.kappa, 2 * np.sin(np.minimum(reach, math.pi) / 2), self.smallest_mass)

    def __call__(self, t: Any) -> Any:
        """The bound of W2(rho_t^beta, rho_t^0) at time(s) t; a float for a number, a tensor for a sequence."""
        wanted = read_times(t)
        grid = self._grid(wanted)
        value = np.minimum(2.0, np.interp(wanted, grid, self._drift(grid)[0]))
        return float(value) if wanted.ndim == 0 else torch.from_numpy(value)

    def to_limit(self, t: Any, zero: Any) -> Any:
        """The bound of W2(rho_t^beta, Pi#rho_0); zero: the zero-temperature distance at the same time(s)."""
        wanted = read_times(t)
        grid = self._grid(wanted)
        eta, size = self._drift(grid)
        system = comparison(self.spectrum)
        ones = np.ones(len(self.points))
        pushes = (system.uniform_push(a * ones) if system else Push(*4 * (a * ones,)) for a in size)
        target = limits(self.spectrum, self.points)
        ways = orbit(self.spectrum.M.matrix, self.spectrum.weights.B, self.points, grid)
        orbits = orbit_angles(self.spectrum, ways, target)
        angles, _ = token_angles(system, self.points.numpy(), target, orbits, np.diff(grid), pushes, self.L0)
        tokenwise = np.interp(wanted, grid, distance(angles, self.mass.numpy()))
        value = np.minimum(2.0, np.minimum(np.interp(wanted, grid, eta) + np.asarray(zero), tokenwise))
        return float(value) if wanted.ndim == 0 else torch.from_numpy(value)

    def _grid(self, wanted: np.ndarray) -> np.ndarray:
        end = float(np.max(wanted, initial=0.0))
        return np.unique(np.concatenate([np.linspace(0, end, PANELS + 1), np.atleast_1d(wanted)]))

    def _drift(self, grid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(eta at the grid, bound of the defect on its intervals): both grow, so that ends of panels suffice."""
        eta, size = np.zeros(len(grid)), np.zeros(len(grid) - 1)
        for i, (start, end) in enumerate(itertools.pairwise(grid)):
            size[i], eta[i + 1] = 2 * self.V_norm, math.pi
            guess = eta[i]
            for _ in range(ATTEMPTS if eta[i] < math.pi else 0):
                forcing = self.V_norm * self.laplace(end, guess)
                reached = propagated(eta[i], forcing, self.L0, end - start)
                if reached <= guess:
                    size[i], eta[i + 1] = forcing, reached
                    break
                guess = min(1.1 * reached, math.pi)
        return eta, size


def priori_bound(
    w: AttentionWeights, beta: float, rho0: Any, L0: float | None = None, seed: int = 0
) -> PrioriBound:
    """S4 for tokens: the smallest cap masses of rho_0 over a sample of directions (the tokens and uniform ones)."""
    rho = tokens(rho0, check_weights(w).d)
    beta = number(beta, "beta", above=0.0)
    seed = integer(seed, "seed", least=0, most=2**63 - 1)
    constant = growth_constant(w) if L0 is None else number(L0, "L0", least=0.0)
    d = rho.d
    count = int(max(16, min(512, 2e7 // rho.n)))
    generator = torch.Generator().manual_seed(seed)
    chosen = rho.points[torch.randint(rho.n, (count // 2,), generator=generator)]
    directions = torch.cat([chosen, -chosen, uniform(count, d, generator)])
    angles = np.concatenate([[0.0], np.geomspace(1e-6, math.pi, 400)])
    smallest = np.full(len(angles), np.inf)
    for block in directions.split(32):
        angle = torch.acos(torch.clamp(block @ rho.points.T, -1.0, 1.0))
        order = torch.argsort(angle, dim=1)
        total = torch.cumsum(rho.mass[order], dim=1)
        index = torch.searchsorted(
            torch.gather(angle, 1, order), torch.from_numpy(angles).expand(len(block), -1).contiguous(), right=True
        )
        mass = torch.where(index > 0, torch.gather(total, 1, (index - 1).clamp(min=0)), 0.0)
        smallest = np.minimum(smallest, mass.min(dim=0).values.numpy())
    s = spectrum(w)
    return PrioriBound(
        s, rho.points, rho.mass, constant, beta * float(s.B_singular_values[-1]), w.V_norm, angles, smallest
    )
