"""Refinement: solve on more and more nodes until the flow map at common starting points stands still.

The flow maps Phi, Phi' of two resolutions push one and the same rho_0 forward, so
    W2(Phi#rho_0, Phi'#rho_0)^2 <= E_{rho_0} |Phi(x) - Phi'(x)|^2,
and the right-hand side is what is measured: on panels finer than those of both (`refine_circle`), at tokens without
mass that are carried along (`refine_sphere`, S^2 and beyond), or, where the law is made of tokens, at these.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from metastable.flows.flow import Flow
from metastable.meanfield.law import Empirical
from metastable.meanfield.piecewise import Array
from metastable.meanfield.progress import Tell
from metastable.solve import solve as solve_tokens

OUTPUT_NODES = 2**15
"""Largest number of nodes that a path is interpolated to: what bounds its memory, half a megabyte a frame."""


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


def refine_atoms(flow: Flow, law: Empirical, times: Array, tol: float, tell: Tell | None = None) -> Refined:
    """The tokens are the law: only the steps are refined."""
    tight = min(max(1e-2 * tol, 1e-11), 1e-6)
    coarse, fine = (
        solve_tokens(flow, law.measure, float(times[-1]), times, rtol=rtol, atol=rtol, progress=tell)
        for rtol in (tight, 0.05 * tight)
    )
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
