"""Refinement on S^2 past the concentration: bundles of ever more lines and accuracy, until two of them agree."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from metastable.flows import SelfAttention
from metastable.meanfield.agreement import Agreement, agree
from metastable.meanfield.bundle import Bundle, flow_map
from metastable.meanfield.crowding import crowded, crowding
from metastable.meanfield.law import Law
from metastable.meanfield.limit import axis_and_normal
from metastable.meanfield.longitudes import Crowded, Grading
from metastable.meanfield.panel_run import Accuracy, FlowMap
from metastable.meanfield.panels import Panels
from metastable.meanfield.piecewise import Array
from metastable.meanfield.product_rule import ProductRule
from metastable.meanfield.progress import Tell
from metastable.meanfield.refine import Refined
from metastable.spectral import dominant
from metastable.weights import AttentionWeights

LATE = 1.5
"""Time, in units of |B^T e|/gap, from which bundles replace product rules: e^{-1.5} is left of a distance to the
dominant space. Measured at beta = 16, tol = 1e-5, V = diag(2, 1, .5): at 2 a product rule takes 14280 nodes, 25 s
of CPU time; at 5 it had not come to an end after 200 s."""
BUNDLE_NODES = 2**20
"""Most nodes of a bundle: stages of a step then take 330 MB."""
EXTRA = 0.5
"""Lines that the source asks for, in units of those that the kernel asks for: the flow spreads lines that start phi
from the source by 1/(2 phi) at most, before they gather again."""
LEAST_COMMON = 4
"""Least number of lines that two bundles share, and a factor of it: bundles have 3, 4, 5 ... times as many."""
SIGNED = 0.03
"""Share of the misplaced mass by which a mean over lines may be off: what single lines misplace cancels in it, and
W2 sees all of that. Measured (V = diag(2, 1, .5), beta = 16, t = 20): the 144 lines that a mean to 3e-11 asks for
are 3.2e-5 from 192, which is 2.6e-10, and 192 are 6.8e-6 from 240."""
PILOT = 300.0
"""Mass that a pilot may misplace, in units of what other runs may: how fast modes decay is seen long before they
are negligible."""
LOOKS = 20
"""Equidistant times at which a pilot looks at its lines, besides those asked for."""


def is_late(flow: SelfAttention, t: float) -> bool:
    """Whether there is a separatrix, and time enough to concentrate away from it."""
    if not isinstance(flow.weights, AttentionWeights):
        return False
    top = dominant(flow.weights.M)
    if top.kind != "point pair":
        return False
    e = axis_and_normal(top)[0]
    return top.gap * t > LATE * float(np.linalg.norm(flow.weights.B.numpy().T @ e))


def refine_bundle(
    flow: SelfAttention,
    law: Law,
    times: Array,
    tol: float,
    kappa: float,
    max_nodes: int,
    expected: float,
    device: Any = None,
    tell: Tell | None = None,
) -> Refined:
    """Flow maps on bundles of 3, 4, 5 ... times as many lines as they share, until two agree to tol."""
    misplaced = 0.3 * tol**2
    assert isinstance(flow.weights, AttentionWeights)
    frame, first = _laid_out(flow.weights, float(times[-1]), misplaced)
    spacing = math.sqrt(2 * math.pi**2 / (max(kappa, 4.0) * math.log(1 / misplaced)))
    looks = np.union1d(times, np.linspace(0.0, float(times[-1]), LOOKS + 1)[1:])
    bundles: list[Bundle] = []

    def pilot(grading: Grading | Crowded, accuracy: Accuracy) -> tuple[Bundle, FlowMap]:
        bundle = Bundle.of(law, frame, 3 * _common(grading, spacing), grading)
        return bundle, flow_map(flow, bundle, looks, kappa, accuracy, max_nodes, device=device, tell=tell)

    grading = crowded(first, pilot, SIGNED * misplaced, PILOT * misplaced)
    common = _common(grading, spacing)

    def run(accuracy: Accuracy) -> FlowMap:
        bundle = Bundle.of(law, frame, common * (3 + len(bundles)), grading)
        found = flow_map(flow, bundle, times, kappa, accuracy, max_nodes, device=device, tell=tell)
        bundles.append(bundle)
        return found

    def differences(coarse: FlowMap, fine: FlowMap) -> Array:
        return _differences(common, bundles[-2], coarse, bundles[-1], fine)

    found = agree(run, differences, times, tol, cheap=False)
    bundle = bundles[-1]
    total = float(bundle.mass(bundle.panels()).sum())
    missed = abs(total / expected - 1)
    errors = np.maximum(found.errors, missed)
    panels = found.fine.frames[0].panels
    for later in found.fine.frames[1:]:
        panels = panels.united(later.panels)
    frames = [_read(item.panels, item.theta, panels).reshape(-1, 3) for item in found.fine.frames]
    mass = bundle.mass(panels).ravel()
    return Refined(
        frames=torch.from_numpy(np.stack(frames)),
        mass=torch.from_numpy(mass / mass.sum()),
        start=torch.from_numpy(bundle.start(panels).reshape(-1, 3)),
        errors=tuple(errors.tolist()),
        converged=found.converged and missed < tol,
        solver="bundle of lines",
        nodes=found.fine.most_nodes,
        total=total,
        reason=found.reason if found.fine.unresolved else _reason(bundle, found, misplaced),
    )


def _reason(bundle: Bundle, found: Agreement, misplaced: float) -> str:
    """What a path that is not converged lacks: lines, or what the agreement says."""
    wanted = float(crowding(bundle, found.fine, misplaced).max())
    if found.converged or wanted <= 1:
        return found.reason
    return f"lines at the front of a cluster would have to be {wanted:.2g} times as close: raise tol"


def _common(grading: Grading | Crowded, spacing: float) -> int:
    """Lines that two bundles share: three times as many are closer than the spacing."""
    return LEAST_COMMON * math.ceil(grading.length / spacing / (3 * LEAST_COMMON))


def _laid_out(weights: AttentionWeights, t: float, misplaced: float) -> tuple[Array, Grading]:
    """Rows (a, b, l), and how dense lines are at a: l is normal to the separatrix, a the source of the flow on it.

    Lines leave a at the rate r, and mass at r + r', so that less than `misplaced` of it is there after
    log(1/misplaced)/(r + r'): lines that are not apart by then need not be resolved.
    """
    top, M, B = dominant(weights.M), weights.M.numpy(), weights.B.numpy()
    normal = axis_and_normal(top)[1]
    plane = ProductRule(normal).frame[:2].T
    values, vectors = np.linalg.eig(plane.T @ M @ plane)
    grading, source = Grading(), plane[:, 0]
    if not np.abs(values.imag).any():  # by the values: NumPy may return real ones as complex numbers
        low, high = np.sort(values.real)
        source = plane @ vectors[:, np.argmin(values.real)].real
        source /= np.linalg.norm(source)
        speed = float(np.linalg.norm(B.T @ source))
        spread, leave = (high - low) / speed, (float(top.eigenvalues[0].real) - low) / speed
        if spread > 0:
            grading = Grading(EXTRA, max(math.exp(-spread * t), misplaced ** (spread / (spread + leave))))
    return np.stack([source, np.cross(normal, source), normal]), grading


def _differences(common: int, coarse_bundle: Bundle, coarse: FlowMap, fine_bundle: Bundle, fine: FlowMap) -> Array:
    """sqrt E_{rho_0} |Phi - Phi'|^2 at every time, over the lines that both have, on panels finer than both."""
    shared = coarse_bundle.every(len(coarse_bundle.longitudes) // common)
    found = []
    for a, b in zip(coarse.frames, fine.frames, strict=True):
        (first, x), (second, y) = (
            bundle.on_every(len(bundle.longitudes) // common, item.panels, item.theta)
            for bundle, item in ((coarse_bundle, a), (fine_bundle, b))
        )
        panels = first.united(second)
        mass = shared.mass(panels)
        square = np.square(_read(first, x, panels) - _read(second, y, panels)).sum(axis=-1)
        found.append(math.sqrt(float((mass * square).sum() / mass.sum())))
    return np.array(found)


def _read(panels: Panels, values: Array, finer: Panels) -> Array:
    """Points on finer panels, on the sphere again."""
    read = panels.read(values, finer)
    return np.asarray(read / np.linalg.norm(read, axis=-1, keepdims=True))
