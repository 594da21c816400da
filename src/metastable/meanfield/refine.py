"""Refinement: solve on more and more nodes until the flow map at common starting points stands still.

The flow maps Phi, Phi' of two resolutions push one and the same rho_0 forward, so
    W2(Phi#rho_0, Phi'#rho_0)^2 <= E_{rho_0} |Phi(x) - Phi'(x)|^2,
and the right-hand side is what is measured: on panels finer than those of both (circle), or at tokens without
mass that are carried along (S^2 and beyond).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from metastable import sphere
from metastable.errors import InvalidInput, NotDefined, SolveError
from metastable.flows.flow import Flow, WeightedFlow
from metastable.meanfield.circle import CircleLaw, circle_law
from metastable.meanfield.lagrangian import LEAST_MASS, Accuracy, FlowMap, Frame, flow_map
from metastable.meanfield.laws import Empirical, Law, checked_density
from metastable.meanfield.limit import dominant
from metastable.meanfield.nodes import sobol
from metastable.meanfield.panels import DEEPEST, NODES
from metastable.meanfield.piecewise import Array
from metastable.meanfield.product_rule import ProductRule
from metastable.measure import Measure
from metastable.solve import solve as solve_tokens
from metastable.weights import AttentionWeights

OUTPUT_NODES = 2**15
"""Largest number of nodes that a path is interpolated to."""


@dataclass(frozen=True)
class Refined:
    """Nodes (m, n, d) with masses at the times, the last change of the flow map at each, and how it was done."""

    frames: Tensor
    mass: Tensor
    start: Tensor
    errors: tuple[float, ...]
    converged: bool
    solver: str
    nodes: int
    total: float
    reason: str = "raise max_nodes or tol"
    """What would help when it did not converge."""


def refine_circle(flow: Flow, law: Law, times: Array, tol: float, kappa: float, max_nodes: int) -> Refined:
    """Two runs of different accuracy on panels, and on until they agree to tol."""
    initial = circle_law(law)
    fine: FlowMap | None = None
    errors, converged = np.full(len(times), np.inf), False
    for mass, width in _accuracies(tol):
        if fine is not None and fine.torn and mass > max(0.3 * tol**2, LEAST_MASS):
            continue
        coarse = fine
        fine = flow_map(flow, initial, times, kappa, Accuracy.within(mass, width), max_nodes)
        if coarse is not None:
            errors = np.maximum(_differences(initial, coarse, fine), 2 * math.sqrt(fine.unresolved))
            converged = bool(errors.max() < tol) and initial.resolved
            if converged or fine.unresolved:
                break
    assert fine is not None
    reason = "raise max_nodes or tol" if fine.unresolved else "a smaller tol refines further"
    if not initial.resolved:
        reason = f"the cells of the density sum to {initial.total:.6g} and do not resolve it: smooth it"
    elif fine.torn and not fine.unresolved and mass <= LEAST_MASS:
        reason = (
            "tokens were torn apart at a separatrix, where a misplaced mass dp costs 2 sqrt(dp) and float64 leaves "
            f"dp = {errors.max() ** 2 / 4:.1g}: raise tol"
        )
    theta, weight, start = _dense_output(initial, fine, tol)
    return Refined(
        frames=sphere.from_angles(theta),
        mass=torch.from_numpy(weight),
        start=sphere.from_angles(start),
        errors=tuple(errors.tolist()),
        converged=converged,
        solver="panels of the circle",
        nodes=fine.most_nodes,
        total=initial.total,
        reason=reason,
    )


def _accuracies(tol: float) -> Iterator[tuple[float, float]]:
    """Misplaced mass allowed, and width of the panels: cheap runs, then such that W2 = 2 sqrt(dp) is below tol."""
    if tol < 5e-3:
        yield 1e-3 * tol, 6.0
        yield 1e-4 * tol, 5.0  # left out when the first run was torn: it would be in vain
    for share, width in ((0.3, 5.5), (0.06, 4.5), (0.02, 4.0), (2e-3, 4.0), (2e-4, 4.0)):
        yield max(share * tol**2, LEAST_MASS), width
        if share * tol**2 <= LEAST_MASS and width == 4.0:
            return


def _differences(law: CircleLaw, coarse: FlowMap, fine: FlowMap) -> Array:
    """sqrt E_{rho_0} |Phi - Phi'|^2 at every time, on the panels that are finer than those of both."""
    found = []
    for a, b in zip(coarse.frames, fine.frames, strict=True):
        panels = a.panels.united(b.panels)
        chord = 2 * np.sin((a.panels.read(a.theta, panels) - b.panels.read(b.theta, panels)) / 2)
        found.append(math.sqrt(float((panels.mass(law) * chord**2).sum())))
    return np.array(found)


def _dense_output(law: CircleLaw, run: FlowMap, tol: float) -> tuple[Array, Array, Array]:
    """The map at nodes common to all times, so dense that W2 to two antipodal atoms can be read off them to tol.

    The cost has a kink between the atoms, which a panel of mass m and width h integrates to .009 m h; so W2 is off
    by .0045 m h / W2, and W2^2 >= 1 - (largest eigenvalue of E x x^T), whatever the atoms are.
    """
    panels = run.frames[0].panels
    for frame in run.frames[1:]:
        panels = panels.united(frame.panels)
    scale = [max(_least_distance(frame, law), tol) for frame in run.frames]
    target = 100 * tol
    while True:
        dense = panels
        while True:
            theta = [frame.panels.read(frame.theta, dense) for frame in run.frames]
            width = np.max([np.abs(x[:, -1] - x[:, 0]) / w for x, w in zip(theta, scale, strict=True)], axis=0)
            chosen = (width * dense.mass(law).sum(axis=1) > target) & (dense.level < DEEPEST)
            if not chosen.any() or NODES * (len(dense) + int(chosen.sum())) > OUTPUT_NODES:
                break
            dense = dense.halved(chosen)
        if not chosen.any() or len(dense) * NODES > OUTPUT_NODES // 2:
            break
        target *= 4
    return np.stack([x.ravel() for x in theta]), dense.mass(law).ravel(), dense.start(law).ravel()


def _least_distance(frame: Frame, law: CircleLaw) -> float:
    """Lower bound of the distance to any two antipodal atoms."""
    mass = frame.panels.mass(law)
    twice = complex((mass * np.cos(2 * frame.theta)).sum(), (mass * np.sin(2 * frame.theta)).sum())
    return math.sqrt(max((1 - abs(twice)) / 2, 0.0))


def refine_sphere(flow: Flow, law: Law, times: Array, tol: float, kappa: float, max_nodes: int) -> Refined:
    """Product rules (d = 3) or Sobol points (d > 3), judged by tokens without mass, each number of nodes by itself.

    A run with more heights and one with more longitudes say what either lacks, and only that grows: concentration
    at a pole or on a great circle asks for many of one and few of the other.
    """
    probes = sphere.fibonacci(400) if law.d == 3 else sobol(512, law.d)
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
    try:
        top = dominant(flow.weights)
    except NotDefined:
        return plain
    if not math.isfinite(top.gap):
        return plain
    speed = float(np.linalg.norm(flow.weights.B.numpy().T @ top.basis, axis=0).min())
    if top.k == 1:
        return ProductRule(top.left, eps=max(math.exp(-top.gap * t / speed), 1e-6))
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


def refine_atoms(flow: Flow, law: Empirical, times: Array, tol: float) -> Refined:
    """The tokens are the law: only the steps are refined."""
    tight = min(max(1e-2 * tol, 1e-11), 1e-6)
    coarse = solve_tokens(flow, law.measure, float(times[-1]), times, rtol=tight, atol=tight)
    fine = solve_tokens(flow, law.measure, float(times[-1]), times, rtol=0.05 * tight, atol=0.05 * tight)
    errors = ((fine.points - coarse.points).square().sum(-1) @ law.measure.mass).sqrt()
    return Refined(
        frames=fine.points,
        mass=law.measure.mass,
        start=law.measure.points,
        errors=tuple(errors.tolist()),
        converged=bool(errors.max() < tol),
        solver="tokens of the law",
        nodes=law.measure.n,
        total=law.measure.total,
    )
