"""Refinement on the circle: flow maps of growing accuracy on panels, until two of them agree."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import torch

from metastable import sphere
from metastable.flows.flow import Flow
from metastable.meanfield.agreement import agree, differences_of_angles
from metastable.meanfield.circle import CircleLaw, circle_law
from metastable.meanfield.lagrangian import flow_map
from metastable.meanfield.law import Law
from metastable.meanfield.panel_run import Accuracy, FlowMap, Frame
from metastable.meanfield.panels import MOST_HALVINGS, NODES
from metastable.meanfield.piecewise import Array
from metastable.meanfield.progress import Tell
from metastable.meanfield.refine import OUTPUT_NODES, Refined


def refine_circle(
    flow: Flow, law: Law, times: Array, tol: float, kappa: float, max_nodes: int, tell: Tell | None = None
) -> Refined:
    """Two runs of different accuracy on panels, and on until they agree to tol."""
    initial = circle_law(law)

    def run(accuracy: Accuracy) -> FlowMap:
        return flow_map(flow, initial, times, kappa, accuracy, max_nodes, tell=tell)

    found = agree(run, partial(differences_of_angles, lambda panels: panels.mass(initial)), times, tol)
    fine, errors, reason = found.fine, found.errors, found.reason
    if not initial.resolved:
        reason = f"the cells of the density sum to {initial.total:.6g} and do not resolve it: smooth it"
    theta, weight, start = _dense_output(initial, fine, tol)
    return Refined(
        frames=torch.stack([sphere.from_angles(frame) for frame in theta]),
        mass=torch.from_numpy(weight),
        start=sphere.from_angles(start),
        errors=tuple(errors.tolist()),
        converged=found.converged and initial.resolved,
        solver="panels of the circle",
        nodes=fine.most_nodes,
        total=initial.total,
        reason=reason,
    )


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
