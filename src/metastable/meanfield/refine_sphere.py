"""Refinement on S^2 and beyond: product rules or Sobol points, judged by tokens without mass."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metastable import sphere
from metastable.errors import InvalidInput, SolveError
from metastable.flows.flow import Flow, WeightedFlow
from metastable.meanfield.caps import MOST_HEIGHTS, Split, cap_nodes, split
from metastable.meanfield.circle import plain_attention
from metastable.meanfield.law import LEAST_INTEGRAL, Law, checked_density
from metastable.meanfield.limit import axis_and_normal
from metastable.meanfield.piecewise import Array
from metastable.meanfield.product_rule import ProductRule
from metastable.meanfield.progress import Tell
from metastable.meanfield.refine import OUTPUT_NODES, Refined
from metastable.meanfield.refine_bundle import BUNDLE_NODES, is_late, refine_bundle
from metastable.meanfield.sobol import sobol
from metastable.meanfield.spikes import integral_and_spike
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

MOST_NODES = 20000
"""Most nodes of a product rule or a Sobol sequence, unless others are asked for."""
ALONG_THE_SPHERE = 4.0
"""Most that errors of an interpolated map along the sphere exceed those across it: 3.5 in `test_refine_sphere`."""
FIRST_CAP = 6
"""First number of heights of a cap: six integrate polynomials of degree 11 over it."""


def refine_sphere(
    flow: Flow,
    law: Law,
    times: Array,
    tol: float,
    kappa: float,
    max_nodes: int | None = None,
    device: Any = None,
    tell: Tell | None = None,
) -> Refined:
    """Product rules (d = 3) or Sobol points (d > 3), judged by tokens without mass, each number of nodes by itself.

    A run with more heights and one with more longitudes say what either lacks, and only that grows: concentration
    at a pole or on a great circle asks for many of one and few of the other. Narrow parts of a mixture have nodes
    of their own (`metastable.meanfield.caps`). Where tokens are torn apart at a separatrix, bundles of lines take
    over (`refine_bundle`).
    """
    quadrature = _Quadrature(split(law), _sphere_rule(flow, float(times[-1])) if law.d == 3 else None, law.d)
    probes, weight = quadrature.probes()
    tight = min(max(1e-2 * tol, 1e-12), 1e-7)

    def run(size: tuple[int, ...]) -> _SphereRun:
        points, mass, total = quadrature.nodes(size)
        joined = Measure(torch.cat([points, probes]), torch.cat([mass, torch.zeros(len(probes), dtype=mass.dtype)]))
        path = solve_tokens(flow, joined, float(times[-1]), times, rtol=tight, atol=tight, progress=tell)
        return _SphereRun(size, points, mass, total, path.points[:, : len(points)], path.points[:, len(points) :])

    expected, hidden = quadrature.expected(law.integral())
    smooth = law.d == 3 and not quadrature.law.caps and not hidden
    if smooth and plain_attention(flow) and is_late(flow, float(times[-1])):
        return refine_bundle(flow, law, times, tol, kappa, max_nodes or BUNDLE_NODES, expected, device, tell)
    max_nodes = max_nodes or MOST_NODES
    size = quadrature.first_size(kappa)
    base = run(size if hidden else _seen_size(quadrature, size, expected, tol, max_nodes))
    while True:
        missed = abs(base.total / expected - 1)
        larger = [run(_grown(base.size, i)) for i in range(len(base.size))]
        lacks = [((r.traced - base.traced).square().sum(-1) @ weight).sqrt().numpy() for r in larger]
        errors = np.sqrt(np.sum(np.square(lacks), axis=0))
        best = larger[int(np.argmax([lack.max() for lack in lacks]))]
        errors = np.maximum(errors, max(missed, 2 * math.sqrt(hidden)))
        # Runs that share their steps agree to more digits than these have: no error is below the steps' own.
        errors = np.maximum(errors, np.where(times > 0, min(tight, 1e-2 * tol), 0.0))
        converged = bool(errors.max() < tol)
        size = base.size
        for i, lack in enumerate(lacks):
            if max(float(lack.max()), missed) > tol / (1 + len(lacks)):
                size = _grown(size, i)
        if converged or hidden or size == base.size or quadrature.count(_grown(size, 0)) > max_nodes:
            break
        base = next((r for r in larger if r.size == size), None) or run(size)
    frames, mass, start, off = _dense_sphere(quadrature, best, tol)
    errors = np.maximum(errors, off)
    reason = "raise max_nodes or tol"
    if hidden:
        reason = (
            f"the density has spikes between the nodes, with {hidden:.2g} of its mass: give it as a Mixture with "
            "VonMisesFisher parts, whose places are known"
        )
    elif missed >= tol:
        reason = (
            f"the nodes sum to {best.total:.6g} of the law's {expected:.6g}, which is too narrow for them: raise "
            "max_nodes or tol"
        )
    return Refined(
        frames=frames,
        mass=mass,
        start=start,
        errors=tuple(errors.tolist()),
        converged=converged,
        solver="product rule" if quadrature.rule is not None else "Sobol",
        nodes=len(best.points),
        total=best.total,
        reason=reason,
    )


@dataclass(frozen=True, eq=False)
class _Quadrature:
    """Nodes for a law: a rule for the whole sphere for its smooth part, and caps for the narrow ones.

    A size is (heights, longitudes) of the rule or (points,) of the Sobol sequence, where there is a smooth part,
    then the heights of the caps, where there are caps.
    """

    law: Split
    rule: ProductRule | None
    d: int

    @property
    def smooth_sizes(self) -> int:
        """How many numbers of a size belong to the smooth part."""
        return 0 if self.law.smooth is None else 2 if self.rule is not None else 1

    def first_size(self, kappa: float) -> tuple[int, ...]:
        """Nodes as dense as the kernel of attention is wide."""
        size = _first_size(self.rule, kappa)[: self.smooth_sizes]
        return (*size, FIRST_CAP) if self.law.caps else size

    def count(self, size: tuple[int, ...]) -> int:
        """Number of nodes of a size."""
        smooth = math.prod(size[: self.smooth_sizes]) if self.smooth_sizes else 0
        return smooth + (2 * min(size[-1], MOST_HEIGHTS) ** 2 * len(self.law.caps) if self.law.caps else 0)

    def smooth_nodes(self, size: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Nodes of the smooth part, and masses that sum to its integral times its share."""
        assert self.law.smooth is not None
        if self.rule is None:
            points = sobol(size[0], self.d)
            return points, checked_density(self.law.smooth, points) * (self.law.share / size[0])
        x, weight = self.rule.nodes(size[0], size[1])
        points = torch.from_numpy(x)
        return points, checked_density(self.law.smooth, points) * torch.from_numpy(self.law.share * weight)

    def nodes(self, size: tuple[int, ...]) -> tuple[Tensor, Tensor, float]:
        """Points, masses that sum to one, and what they summed to, which `expected` has found to be positive."""
        pieces = [] if self.law.smooth is None else [self.smooth_nodes(size)]
        for weight, part in self.law.caps:
            points, mass = cap_nodes(part, size[-1])
            pieces.append((points, weight * mass))
        values = torch.cat([mass for _, mass in pieces])
        total = float(values.sum())
        if not total >= LEAST_INTEGRAL:
            raise SolveError(
                f"the law is too narrow for {len(values)} nodes: none of them sees it; raise max_nodes, or give "
                "its narrow parts as VonMisesFisher"
            )
        return torch.cat([points for points, _ in pieces]), values / total, total

    def probes(self) -> tuple[Tensor, Tensor]:
        """Tokens by which runs are compared, and their shares of the law."""
        points, weights = [], []
        if self.law.smooth is not None:
            probes = sphere.fibonacci(PROBES_ON_S2) if self.d == 3 else sobol(PROBES, self.d)
            weight = checked_density(self.law.smooth, probes)
            # A law that reaches none of the probes is judged by all of them alike.
            weight = weight if float(weight.sum()) > 0 else torch.ones_like(weight)
            points.append(probes)
            weights.append(self.law.share * weight / weight.sum())
        for share, part in self.law.caps:
            probes, mass = cap_nodes(part, FIRST_CAP - 1)
            points.append(probes)
            weights.append(share * mass)
        return torch.cat(points), torch.cat(weights) / float(torch.cat(weights).sum())

    def expected(self, known: float | None) -> tuple[float, float]:
        """The integral of the law, and the share of it that a rule of 256 by 512 nodes does not see.

        On S^2 a function is asked at other places, too (`metastable.meanfield.spikes`).
        """
        if known is not None or self.law.smooth is None:
            return known or 1.0, 0.0
        points, mass = self.smooth_nodes((2**17,) if self.rule is None else (256, 512))
        narrow, smooth, spike = sum(weight for weight, _ in self.law.caps), float(mass.sum()), 0.0
        if self.rule is not None:
            highest = float(checked_density(self.law.smooth, points).max())
            whole, spike = integral_and_spike(self.law.smooth, highest, smooth / self.law.share)
            smooth = self.law.share * whole
        if not narrow + smooth >= LEAST_INTEGRAL:
            raise InvalidInput(f"density must have a positive integral, got {narrow + smooth:g}")
        return narrow + smooth, spike * smooth / (narrow + smooth)


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


def _first_size(rule: ProductRule | None, kappa: float) -> tuple[int, ...]:
    if rule is None:
        return (1024,)
    width = 1.3 / math.sqrt(max(kappa, 4.0))
    longitudes = 2 * math.ceil(math.pi / width)
    grading = 1.0 if rule.eps is None else math.asinh(1 / rule.eps)
    return (math.ceil(max(1.0, grading) * longitudes / 2), longitudes)


def _seen_size(
    quadrature: _Quadrature, size: tuple[int, ...], expected: float, tol: float, max_nodes: int
) -> tuple[int, ...]:
    """Nodes that see the law before its flow: those that miss a part of it would agree on what they do not see."""
    while True:
        try:
            missed = abs(quadrature.nodes(size)[2] / expected - 1)
        except SolveError:
            if quadrature.count(size) * 2.25 > max_nodes:
                raise
            missed = math.inf
        if missed <= tol or quadrature.count(size) * 2.25 > max_nodes:
            return size
        for i in range(quadrature.smooth_sizes):
            size = _grown(size, i)


def _dense_sphere(
    quadrature: _Quadrature, run: _SphereRun, tol: float
) -> tuple[Tensor, Tensor, Tensor, float | Array]:
    """Frames of the smooth part interpolated to a finer rule where that is good to tol, and the error of that.

    The coordinates of the flow map are interpolated one by one, and nothing holds them on the sphere but that they
    are right: the rms of |x| - 1 tells how well they are known.
    """
    coarse = run.size[:2]
    smooth = math.prod(coarse)
    factor = min(4, int(math.sqrt(OUTPUT_NODES / smooth)))
    rule = quadrature.rule
    if rule is None or quadrature.smooth_sizes < 2 or factor < 2:
        return run.frames, run.mass, run.points, 0.0
    fine = (coarse[0] * factor, coarse[1] * factor)
    points, mass = quadrature.smooth_nodes(fine)
    dense = torch.from_numpy(
        np.stack([rule.interpolate(frame[:smooth].numpy(), (coarse[0], coarse[1]), fine) for frame in run.frames])
    )
    off = ((dense.norm(dim=-1) - 1).square() @ (mass / mass.sum())).sqrt() * ALONG_THE_SPHERE
    frames = torch.cat([sphere.normalize(dense), run.frames[:, smooth:]], dim=1)
    mass = torch.cat([mass, run.mass[smooth:] * run.total])
    mass = mass / mass.sum()
    # The quadrature resolves moments before the interpolation resolves the map: keep the nodes if it does not.
    defect = max(
        float((a - b).abs().max())
        for a, b in zip(_moments(frames, mass), _moments(run.frames, run.mass), strict=True)
    )
    if not max(defect, float(off.max())) < tol:
        return run.frames, run.mass, run.points, 0.0
    return frames, mass, torch.cat([points, run.points[smooth:]]), off.numpy()


def _moments(frames: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
    return torch.einsum("tnd,n->td", frames, mass), torch.einsum("tnd,tne,n->tde", frames, frames, mass)
