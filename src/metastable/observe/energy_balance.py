"""The energy of many heads with moving weights, where it comes from and where it goes (M1).

E(x; D) = (1/2H) sum_h sum_ij m_i m_j e^{<x_i, D_h x_j>}. Along tokens with velocity v and weights
dD = f dt + sqrt(nu) dW it obeys

    E_T - E_0 = int <dE/dD, f> dt + Ito - int G^2 dt + M_T,      G^2 = -sum_i m_i <a_i, v_i>,

with the gradient a_i = (1/H) sum_h Z_i^h P w_i^h, the martingale dM = <dE/dD, sqrt(nu) dW>, and the Ito density
(nu/8H) sum_h sum_ij m_i m_j e^{<x_i, D_h x_j>} (1 + <x_i, x_j>^2). Source of the model: [arXiv:2605.18870].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import choice, instance, shape, shown
from metastable.errors import InvalidInput
from metastable.flows.head_descent import HeadDescent
from metastable.flows.head_sums import SCORES_AT_ONCE, head_sums
from metastable.measure import Measure, as_measure
from metastable.solve.path import Path
from metastable.weights import OrnsteinUhlenbeck

RULES = ("ito", "stratonovich")


@dataclass(frozen=True, eq=False)
class EnergyBalance:
    """All terms of the identity, each as it has grown from the first time of a path to each of its times (m,).

    supplied: the work of the weights' drift (of all of their motion, in the Stratonovich form). ito and martingale:
    the work of their noise. dissipated: int G^2 dt.
    """

    times: Float[Tensor, "m"]
    energy: Float[Tensor, "m"]
    supplied: Float[Tensor, "m"]
    ito: Float[Tensor, "m"]
    martingale: Float[Tensor, "m"]
    dissipated: Float[Tensor, "m"]

    def __post_init__(self) -> None:
        for name in ("times", "energy", "supplied", "ito", "martingale", "dissipated"):
            value = getattr(self, name)
            if not (isinstance(value, Tensor) and value.ndim == 1 and shape(value) == shape(self.times)):
                raise InvalidInput(f"{name} of an EnergyBalance must be one number per time, got {shown(value)}")

    @property
    def residual(self) -> Float[Tensor, "m"]:
        """E_t - E_0 minus what the terms say of it: zero up to the error of the time steps."""
        explained = self.supplied + self.ito + self.martingale - self.dissipated
        return self.energy - self.energy[0] - explained

    def __repr__(self) -> str:
        return (
            f"EnergyBalance({len(self.times)} times, E = {float(self.energy[0]):.4g} .. "
            f"{float(self.energy[-1]):.4g}, residual {float(self.residual[-1]):.2g})"
        )


def energy_balance(path: Path, flow: HeadDescent, rule: str = "ito") -> EnergyBalance:
    """The identity along a path of `HeadDescent` that was kept at all times of the grid of its weights.

    rule "ito" takes every term at the left end of a step, the drift and the variance of D exactly, and the
    martingale from the innovations of D. Its residual is of first order in the step on average, and of order one
    half on a path: what the squares of the noise differ from their mean. "stratonovich" takes the work of D and the
    dissipation by trapezoids: no Ito term, and a residual of first order on every path. Without noise both are
    first order with Euler. Weights at rest have any times.
    """
    instance(path, "path", Path, "a Path such as solve returns")
    instance(flow, "flow", HeadDescent, "a HeadDescent")
    choice(rule, "rule", RULES)
    times = path.times.double().cpu()
    _check_times(times, flow, path.end.d)
    process = flow.heads if isinstance(flow.heads, OrnsteinUhlenbeck) else None
    heads = flow.heads_at(0.0).expand(len(times), -1, -1, -1) if process is None else process.values[: len(times)]
    energy, power, spread, gradient = _along(path, flow, heads)
    step = times.diff()
    none = torch.zeros(len(times) - 1, dtype=torch.float64)
    supplied, ito, martingale = none, none, none
    if process is not None:
        pushed = process.innovations[: len(times) - 1]
        if rule == "ito":
            supplied = _work(gradient[:-1], heads.diff(dim=0) - pushed)
            martingale = _work(gradient[:-1], pushed)
            ito = spread[:-1] * process.noise * -torch.expm1(-2 * step) / 2
        else:
            supplied = _work((gradient[:-1] + gradient[1:]) / 2, heads.diff(dim=0))
    left = power[:-1] if rule == "ito" else (power[:-1] + power[1:]) / 2
    parts = (supplied, ito, martingale, left * step)
    return EnergyBalance(times, energy, *(torch.cat([none[:1] * 0, part.cumsum(0)]) for part in parts))


def head_dissipation(rho: Measure | Any, flow: HeadDescent, t: float = 0.0) -> float:
    """G^2 = -sum_i m_i <a_i, v_i>, what the motion of the tokens takes from the energy per unit of time.

    It is sum_i m_i Z_i |v_i|^2 for one head and sum_i m_i |v_i|^2/b_i for the mobility b of "harmonic". For
    several heads with mobilities of their own it may be negative.

    >>> round(head_dissipation([[1.0, 0.0], [0.0, 1.0]], HeadDescent(torch.eye(2))), 6)
    0.134471
    """
    points, mass, heads = _at(rho, flow, t)
    return float(_energies(points, mass, heads, flow)[1])


def weight_gradient(rho: Measure | Any, flow: HeadDescent, t: float = 0.0) -> Float[Tensor, "h d d"]:
    """dE/dD_h = (1/2H) sum_ij m_i m_j e^{<x_i, D_h x_j>} x_i x_j^T, the force of the tokens on the weights.

    >>> weight_gradient([[1.0, 0.0]], HeadDescent(torch.zeros(2, 2)))
    tensor([[[0.5000, 0.0000],
             [0.0000, 0.0000]]], dtype=torch.float64)
    """
    return _pairs(*_at(rho, flow, t))[0]


def _at(rho: Any, flow: HeadDescent, t: float) -> tuple[Tensor, Tensor, Tensor]:
    measure = as_measure(rho)
    instance(flow, "flow", HeadDescent, "a HeadDescent")
    points, mass = flow.tokens(measure.points, measure.mass)
    return points, mass, flow.heads_at(t, points)


def _along(path: Path, flow: HeadDescent, heads: Tensor) -> list[Tensor]:
    """Energy, G^2, Ito density at nu = 1, and dE/dD at all times, some frames at a time."""
    mass, n = path.mass.double().cpu(), path.end.n
    turn = max(1, SCORES_AT_ONCE // (heads.shape[1] * n**2))
    parts = []
    for first in range(0, len(heads), turn):
        some = range(first, min(first + turn, len(heads)))
        points = torch.stack([path.frame(k) for k in some]).double().cpu()
        weights = heads[first : first + turn]
        gradient, spread = _pairs(points, mass, weights)
        parts.append((*_energies(points, mass, weights, flow), spread, gradient))
    return [torch.cat(column) for column in zip(*parts, strict=True)]


def _energies(points: Tensor, mass: Tensor, heads: Tensor, flow: HeadDescent) -> tuple[Tensor, Tensor]:
    """E and G^2."""
    log_z, w = head_sums(points, mass, heads)
    z = torch.exp(log_z)
    gradient, field = (z.unsqueeze(-1) * w).mean(-3), flow.combined(log_z, w)
    radial = (points * gradient).sum(-1) * (points * field).sum(-1)
    return (z @ mass).mean(-1) / 2, -(((gradient * field).sum(-1) - radial) @ mass)


def _pairs(points: Tensor, mass: Tensor, heads: Tensor) -> tuple[Tensor, Tensor]:
    """dE/dD_h, and (1/8H) sum_h sum_ij m_i m_j e^{<x_i, D_h x_j>} (1 + <x_i, x_j>^2)."""
    rows, twice = points.unsqueeze(-3), 2 * heads.shape[-3]
    weight = torch.exp(rows @ heads @ rows.mT) * mass * mass[:, None]
    spread = (weight.sum(-3) * (1 + (points @ points.mT).square())).sum((-2, -1)) / (4 * twice)
    return rows.mT @ weight @ rows / twice, spread


def _work(force: Tensor, moved: Tensor) -> Tensor:
    return (force * moved).sum((1, 2, 3))


def _check_times(times: Tensor, flow: HeadDescent, d: int) -> None:
    if d != flow.d:
        raise InvalidInput(f"the tokens have dimension {d} but the flow has dimension {flow.d}")
    if not isinstance(flow.heads, OrnsteinUhlenbeck):
        return
    grid = flow.heads.times
    if len(times) > len(grid) or not torch.allclose(times, grid[: len(times)], rtol=1e-12, atol=1e-12):
        raise InvalidInput(
            f"the path must be kept at the times of the weights, {flow.heads.step:g} apart from 0: solve with "
            "times=flow.heads.times"
        )
