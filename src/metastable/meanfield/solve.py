"""`meanfield.solve`: the continuity equation itself, refined until the flow map stands still."""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any

import numpy as np
import torch

from metastable.arguments import flag, instance, integer, number, numbers, shown
from metastable.errors import InvalidInput, SolveError
from metastable.flows import SelfAttention, UnnormalizedAttention
from metastable.flows.flow import Flow, WeightedFlow
from metastable.meanfield.circle import sharpness
from metastable.meanfield.law import Empirical, Law, as_law
from metastable.meanfield.path import MeanFieldPath
from metastable.meanfield.progress import Tell, told
from metastable.meanfield.refine import Refined, refine_atoms
from metastable.meanfield.refine_circle import refine_circle
from metastable.meanfield.refine_sphere import refine_sphere
from metastable.measure import Measure, on_device
from metastable.solve.provenance import provenance
from metastable.weights import AttentionWeights, Schedule

LEAST_TOL = 1e-14
"""Least tolerance: angles are rounded to some 1e-15."""
LONGEST = 1e6
"""Longest time: a flow that does not come to rest would take a day to get there."""
MOST_TIMES = 10**6
"""Most equidistant times."""


def solve(
    w: AttentionWeights | Schedule,
    beta: float,
    density: Any,
    t: float,
    tol: float = 1e-6,
    times: Any = None,
    *,
    normalized: bool = True,
    strict: bool = False,
    max_nodes: int | None = None,
    device: Any = None,
    progress: bool | Tell = False,
) -> MeanFieldPath:
    """d/dt rho_t + div(rho_t v_beta[rho_t]) = 0 on S^{d-1},   v_beta[rho](x) = P_x V m_beta[rho](x).

    density: a law of `metastable.meanfield`, a `Measure` (its tokens are then the law), or a function of points
        (n, d) that returns the density (n,) relative to the uniform probability measure. It is normalised; the
        integral that was given stands in `path.provenance["meanfield"]["total"]`. A function is seen only where it
        is asked: a spike narrower than some 3e-6 on the circle or .003 on S^2 escapes (wider ones are resolved, or
        the path says that it is not converged). A `Mixture` with `VonMisesFisher` parts is resolved at any
        concentration.
    t, times: as for `metastable.solve`: None keeps the start and the end, an integer m keeps m equidistant times.
    tol: nodes and steps are refined until the flow map changes by less than tol, root mean square over rho_0, which
        bounds the change of rho_t in W2. The last change is `path.error` (per time: `path.errors`); the spacing of
        the nodes is not in it, see `MeanFieldPath`.
    normalized: False for the unnormalised flow, v = P_x V E[y e^{beta <x, By>}].
    strict: raise `SolveError` when tol is not reached. By default the best path is returned with a warning and with
        `path.converged` False, because its error estimate is as good as before.
    max_nodes: how far refinement may go (defaults: 8192 on the circle, 20000 on S^2 and beyond, 2^20 in a bundle).
    device: where attention is computed at late times on S^2, which take long: "cuda" where there is one. All else
        stays on the CPU, and so does the path.
    progress: True for a bar on the terminal, or a function of (t, steps); every run of the refinement begins at
        t = 0 again.

    Nodes: on the circle panels, halved where the flow stretches, and a final interpolation to nodes so dense
    that W2 to two antipodal atoms can be read off them to tol as well; on S^2 product Gauss rules, graded
    towards E^perp, and at late times, where E is a line, bundles of lines across E^perp with panels of their
    own (N12); for d > 3 a Sobol sequence. Past the exit of the metastable phase the circle reaches some 5e-7 in
    W2 and not much less: tokens are torn apart there, a misplaced mass dp costs 2 sqrt(dp), and rounding leaves
    1e-14. On S^2 two bundles agree to 1e-5 at t = 20 for beta = 4 to 256, up to 64 through the exit, too; at 16
    this takes 95 s of one core with an axis, 160 to 380 s without, at 64 half an hour, at 256 an hour:
    `benchmarks/meanfield_sphere.py --print` says which cases have been run to the end. Laws with an axis reach
    it to beta = 256 (`solve_axial`). Where two bundles do not agree, the warning says whether it is lines that
    are missing.

    >>> w = AttentionWeights(V=[[2.0, 0.0], [0.0, 1.0]], B=[[1.0, 0.0], [0.0, 1.0]])
    >>> path = solve(w, 16.0, lambda x: 1 + 0.5 * x[:, 0], t=1.0, tol=1e-5)
    >>> path.converged, path.error < 1e-5
    (True, True)
    """
    beta = number(beta, "beta", least=0.0)
    flow = (SelfAttention if flag(normalized, "normalized") else UnnormalizedAttention)(w, beta)
    return solve_flow(
        flow, density, t, tol, times, strict=strict, max_nodes=max_nodes, device=device, progress=progress
    )


def solve_flow(
    flow: Flow,
    density: Any,
    t: float,
    tol: float = 1e-6,
    times: Any = None,
    *,
    strict: bool = False,
    max_nodes: int | None = None,
    device: Any = None,
    progress: bool | Tell = False,
) -> MeanFieldPath:
    """`solve` for any flow on the sphere (several heads, scheduled weights): v is the velocity of the flow."""
    instance(flow, "flow", Flow, "a Flow such as SelfAttention")
    if not flow.spherical:
        raise InvalidInput(f"the mean field lives on the sphere, but {type(flow).__name__} is Euclidean")
    tol, strict = number(tol, "tol", least=LEAST_TOL, most=2.0), flag(strict, "strict")
    max_nodes = None if max_nodes is None else integer(max_nodes, "max_nodes", least=16)
    t = number(t, "t", least=0, most=LONGEST)
    on_device(torch.empty(0), device)
    if flow.d < 2:
        raise InvalidInput(f"the sphere S^(d-1) needs d >= 2, got weights with d = {flow.d}")
    saved = _times(times, t)
    law = as_law(density, flow.d)
    grid = saved if saved[-1] == t else np.append(saved, t)
    weights = flow.weights if isinstance(flow, WeightedFlow) else None
    with told(progress, t) as tell:
        if isinstance(law, Empirical):
            refined = refine_atoms(flow, law, grid, tol, tell)
        elif flow.d == 2:
            refined = refine_circle(flow, law, grid, tol, sharpness(flow), max_nodes or 8192, tell)
        else:
            refined = refine_sphere(flow, law, grid, tol, sharpness(flow), max_nodes, device, tell)
    if not refined.converged:
        sentence = (
            f"the mean field was not resolved to tol = {tol:g}: the last refinement, to {refined.nodes} nodes, "
            f"changed it by {max(refined.errors):.2g} in W2; {refined.reason}, or shorten t = {t:g}"
        )
        if strict:
            raise SolveError(sentence)
        warnings.warn(sentence, RuntimeWarning, stacklevel=3)
    return _path(flow, law, weights, t, tol, saved, refined)


def _times(times: Any, t: float) -> np.ndarray:
    if times is None:
        return np.array([0.0, t] if t > 0 else [0.0])
    if isinstance(times, Integral):
        return np.linspace(0.0, t, integer(times, "times as a number", least=2, most=MOST_TIMES))
    grid = np.array(numbers(times, "times", least=0, increasing=True))
    if not len(grid) or grid[-1] > t:
        raise InvalidInput(f"times must increase within [0, {t:g}], got {shown(times)}")
    return grid


def _path(
    flow: Flow,
    law: Law,
    weights: AttentionWeights | Schedule | None,
    t: float,
    tol: float,
    saved: np.ndarray,
    refined: Refined,
) -> MeanFieldPath:
    record = provenance({"flow": flow.describe(), "t": t, "times": saved.tolist(), "tol": tol}, None)
    record["meanfield"] = {
        "law": type(law).__name__,
        "total": refined.total,
        "solver": refined.solver,
        "solver_nodes": refined.nodes,
        "output_nodes": len(refined.mass),
        "error": max(refined.errors),
        "errors": list(refined.errors[: len(saved)]),
        "converged": refined.converged,
    }
    end = Measure(refined.frames[-1], refined.mass)
    return MeanFieldPath(
        times=torch.from_numpy(saved.copy()),
        mass=end.mass,
        end=end,
        end_time=float(t),
        provenance=record,
        frames=refined.frames[: len(saved)],
        error=max(refined.errors),
        converged=refined.converged,
        errors=torch.tensor(refined.errors[: len(saved)], dtype=torch.float64),
        start=Measure(refined.start, refined.mass),
        law=law,
        weights=weights,
    )
