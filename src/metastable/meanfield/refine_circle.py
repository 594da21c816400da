"""Refinement on the circle: flow maps of growing accuracy on panels, until two of them agree."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch

from metastable import sphere
from metastable.errors import SolveError
from metastable.flows.flow import Flow
from metastable.meanfield.circle import CircleLaw, circle_law
from metastable.meanfield.lagrangian import LEAST_MASS, Accuracy, FlowMap, Frame, flow_map
from metastable.meanfield.law import Law
from metastable.meanfield.panels import MOST_HALVINGS, NODES
from metastable.meanfield.piecewise import Array
from metastable.meanfield.refine import OUTPUT_NODES, Refined


def refine_circle(flow: Flow, law: Law, times: Array, tol: float, kappa: float, max_nodes: int) -> Refined:
    """Two runs of different accuracy on panels, and on until they agree to tol."""
    initial = circle_law(law)
    fine: FlowMap | None = None
    errors, converged = np.full(len(times), np.inf), False
    stopped = ""
    for mass, width in _accuracies(tol):
        if fine is not None and fine.torn and mass > max(0.3 * tol**2, LEAST_MASS):
            continue
        coarse = fine
        try:
            fine = flow_map(flow, initial, times, kappa, Accuracy.within(mass, width), max_nodes)
        except SolveError as error:
            if fine is None:
                raise
            stopped = f"a finer run ended early, {error}"
            break
        if coarse is not None:
            errors = np.maximum(_differences(initial, coarse, fine), 2 * math.sqrt(fine.unresolved))
            converged = bool(errors.max() < tol) and initial.resolved
            if converged or fine.unresolved:
                break
    assert fine is not None
    reason = stopped or ("raise max_nodes or tol" if fine.unresolved else "a smaller tol refines further")
    if not initial.resolved:
        reason = f"the cells of the density sum to {initial.total:.6g} and do not resolve it: smooth it"
    elif fine.torn and not fine.unresolved and mass <= LEAST_MASS:
        reason = (
            "tokens were torn apart at a separatrix, where a misplaced mass dp costs 2 sqrt(dp) and float64 leaves "
            f"dp = {errors.max() ** 2 / 4:.1g}: raise tol"
        )
    theta, weight, start = _dense_output(initial, fine, tol)
    return Refined(
        frames=torch.stack([sphere.from_angles(frame) for frame in theta]),
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
            chosen = (width * dense.mass(law).sum(axis=1) > target) & (dense.level < MOST_HALVINGS)
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
