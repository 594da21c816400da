"""Refinement on S^2 and beyond: product rules or Sobol points, judged by tokens without mass."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from metastable import sphere
from metastable.errors import InvalidInput, SolveError
from metastable.flows.flow import Flow, WeightedFlow
from metastable.meanfield.law import Law, checked_density
from metastable.meanfield.limit import axis_and_normal
from metastable.meanfield.nodes import sobol
from metastable.meanfield.piecewise import Array
from metastable.meanfield.product_rule import ProductRule
from metastable.meanfield.refine import OUTPUT_NODES, Refined
from metastable.measure import Measure
from metastable.solve import solve as solve_tokens
from metastable.spectral import dominant
from metastable.weights import AttentionWeights

FINEST_GRADING = 1e-6
"""Least width eps of the dense belt of a graded rule. Such a rule begins with asinh(1/eps) times the heights of a
plain one, 14.5 times here; late times would ask for ever more, and refinement adds what is missing."""
PROBES_ON_S2, PROBES = 400, 512
"""Tokens without mass by which runs are compared, on S^2 and beyond (there a power of two, as Sobol points want
it)."""


def refine_sphere(flow: Flow, law: Law, times: Array, tol: float, kappa: float, max_nodes: int) -> Refined:
    """Product rules (d = 3) or Sobol points (d > 3), judged by tokens without mass, each number of nodes by itself.

    A run with more heights and one with more longitudes say what either lacks, and only that grows: concentration
    at a pole or on a great circle asks for many of one and few of the other.
    """
    probes = sphere.fibonacci(PROBES_ON_S2) if law.d == 3 else sobol(PROBES, law.d)
    weight = checked_density(law, probes)
    # A law that reaches none of the probes is judged by all of them alike.
    weight = weight / weight.sum() if float(weight.sum()) > 0 else torch.full_like(weight, 1 / len(weight))
    rule = _sphere_rule(flow, float(times[-1])) if law.d == 3 else None
    tight = min(max(1e-2 * tol, 1e-12), 1e-7)

    def run(size: tuple[int, ...]) -> _SphereRun:
        points, mass, total = _sphere_nodes(law, rule, size)
        joined = Measure(torch.cat([points, probes]), torch.cat([mass, torch.zeros(len(probes), dtype=mass.dtype)]))
        path = solve_tokens(flow, joined, float(times[-1]), times, rtol=tight, atol=tight)
        return _SphereRun(size, points, mass, total, path.points[:, : len(points)], path.points[:, len(points) :])

    expected = law.integral()
    if expected is None:
        expected = _sphere_nodes(law, rule, (2**17,) if rule is None else (256, 512))[2]
    base = run(_seen_size(law, rule, _first_size(rule, kappa, law.d), expected, tol, max_nodes))
    while True:
        missed = abs(base.total / expected - 1)
        larger = [run(_grown(base.size, i)) for i in range(len(base.size))]
        lacks = [((r.traced - base.traced).square().sum(-1) @ weight).sqrt().numpy() for r in larger]
        errors = np.sqrt(np.sum(np.square(lacks), axis=0))
        best = larger[int(np.argmax([lack.max() for lack in lacks]))]
        errors = np.maximum(errors, missed)
        converged = bool(errors.max() < tol)
        size = base.size
        for i, lack in enumerate(lacks):
            if max(float(lack.max()), missed) > tol / (1 + len(lacks)):
                size = _grown(size, i)
        if converged or math.prod(_grown(size, 0)) > max_nodes:
            break
        base = next((r for r in larger if r.size == size), None) or run(size)
    frames, mass, start = best.frames, best.mass, best.points
    if rule is not None:
        frames, mass, start = _dense_sphere(law, rule, frames, mass, start, best.size, tol)
    return Refined(
        frames=frames,
        mass=mass,
        start=start,
        errors=tuple(errors.tolist()),
        converged=converged,
        solver="product rule" if rule is not None else "Sobol",
        nodes=len(best.points),
        total=best.total,
        reason="raise max_nodes or tol"
        if missed < tol
        else f"the nodes sum to {best.total:.6g} of the law's "
        f"{expected:.6g}, which is too narrow for them: raise max_nodes or tol",
    )


@dataclass(frozen=True, eq=False)
class _SphereRun:
    """Nodes of one size and where they and the probes went."""

    size: tuple[int, ...]
    points: Tensor
    mass: Tensor
    total: float
    frames: Tensor
    traced: Tensor


def _grown(size: tuple[int, ...], i: int) -> tuple[int, ...]:
    return tuple(math.ceil(1.5 * k) if i == j else k for j, k in enumerate(size))


def _sphere_rule(flow: Flow, t: float) -> ProductRule:
    """Graded towards the separatrix when E is a line, pulled back by e^{-sM} when it is a plane, else plain."""
    plain = ProductRule(np.array([0.0, 0.0, 1.0]))
    if not isinstance(flow, WeightedFlow) or not isinstance(flow.weights, AttentionWeights):
        return plain
    top = dominant(flow.weights.M)
    if top.kind not in ("point pair", "subsphere"):
        return plain
    speed = float(np.linalg.norm(flow.weights.B.numpy().T @ top.space.numpy(), axis=0).min())
    if top.kind == "point pair":
        return ProductRule(axis_and_normal(top)[1], eps=max(math.exp(-top.gap * t / speed), FINEST_GRADING))
    return ProductRule(np.array([0.0, 0.0, 1.0]), generator=flow.weights.M.numpy(), pull=0.2 * t / speed)


def _first_size(rule: ProductRule | None, kappa: float, d: int) -> tuple[int, ...]:
    if rule is None:
        return (1024,)
    width = 1.3 / math.sqrt(max(kappa, 4.0))
    longitudes = 2 * math.ceil(math.pi / width)
    grading = 1.0 if rule.eps is None else math.asinh(1 / rule.eps)
    return (math.ceil(max(1.0, grading) * longitudes / 2), longitudes)


def _seen_size(
    law: Law, rule: ProductRule | None, size: tuple[int, ...], expected: float, tol: float, max_nodes: int
) -> tuple[int, ...]:
    """Nodes that see the law before its flow: those that miss a part of it would agree on what they do not see."""
    while True:
        try:
            missed = abs(_sphere_nodes(law, rule, size)[2] / expected - 1)
        except InvalidInput:
            missed = math.inf
        if missed <= tol or math.prod(size) * 2.25 > max_nodes:
            break
        for i in range(len(size)):
            size = _grown(size, i)
    if math.isinf(missed):
        raise SolveError(
            f"the law is too narrow for {math.prod(size)} nodes: none of them sees it; raise max_nodes"
        )
    return size


def _sphere_nodes(law: Law, rule: ProductRule | None, size: tuple[int, ...]) -> tuple[Tensor, Tensor, float]:
    if rule is None:
        points = sobol(size[0], law.d)
        values = checked_density(law, points) / size[0]
    else:
        x, weight = rule.nodes(size[0], size[1])
        points = torch.from_numpy(x)
        values = checked_density(law, points) * torch.from_numpy(weight)
    total = float(values.sum())
    if not total > 0:
        raise InvalidInput(f"density must have a positive integral, got {total}")
    return points, values / total, total


def _dense_sphere(
    law: Law, rule: ProductRule, frames: Tensor, solved: Tensor, start: Tensor, size: tuple[int, ...], tol: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Interpolate the frames to a finer member of the rule, where that keeps the first moments to tol."""
    factor = min(4, int(math.sqrt(OUTPUT_NODES / math.prod(size))))
    coarse = (size[0], size[1])
    if factor < 2:
        return frames, solved, start
    fine = (coarse[0] * factor, coarse[1] * factor)
    points, mass, _ = _sphere_nodes(law, rule, fine)
    dense = sphere.normalize(
        torch.from_numpy(np.stack([rule.interpolate(frame.numpy(), coarse, fine) for frame in frames]))
    )
    # The quadrature resolves moments before the interpolation resolves the map: keep the nodes if it does not.
    defect = max(
        float((a - b).abs().max()) for a, b in zip(_moments(dense, mass), _moments(frames, solved), strict=True)
    )
    return (dense, mass, points) if defect < tol else (frames, solved, start)


def _moments(frames: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
    return torch.einsum("tnd,n->td", frames, mass), torch.einsum("tnd,tne,n->tde", frames, frames, mass)
