"""Flow maps of growing accuracy on panels, until two agree: what circle, line and bundle share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from metastable.errors import SolveError
from metastable.meanfield.panel_run import LEAST_MASS, Accuracy, FlowMap
from metastable.meanfield.panels import Panels
from metastable.meanfield.piecewise import Array


@dataclass(frozen=True, eq=False)
class Agreement:
    """The last flow map, by how much it differs from the one before at every time, and why there is none after."""

    fine: FlowMap
    errors: Array
    converged: bool
    reason: str


def agree(
    run: Callable[[Accuracy], FlowMap],
    differences: Callable[[FlowMap, FlowMap], Array],
    times: Array,
    tol: float,
    cheap: bool = True,
) -> Agreement:
    """Two runs of different accuracy, and on until they agree to tol, root mean square over rho_0.

    cheap: begin with runs that suffice where nothing is torn apart.
    """
    fine: FlowMap | None = None
    errors, converged, stopped = np.full(len(times), np.inf), False, ""
    for mass, width in _accuracies(tol, cheap):
        if fine is not None and fine.torn and mass > max(0.3 * tol**2, LEAST_MASS):
            continue
        coarse = fine
        try:
            fine = run(Accuracy.within(mass, width))
        except SolveError as error:
            if fine is None:
                raise
            stopped = f"a finer run ended early, {error}"
            break
        if coarse is not None:
            errors = np.maximum(differences(coarse, fine), 2 * math.sqrt(fine.unresolved))
            converged = bool(errors.max() < tol)
            if converged or fine.unresolved:
                break
    assert fine is not None
    reason = stopped or ("raise max_nodes or tol" if fine.unresolved else "a smaller tol refines further")
    if fine.torn and not fine.unresolved and mass <= LEAST_MASS:
        reason = (
            "tokens were torn apart at a separatrix, where a misplaced mass dp costs 2 sqrt(dp) and float64 leaves "
            f"dp = {errors.max() ** 2 / 4:.1g}: raise tol"
        )
    return Agreement(fine, errors, converged, reason)


def differences_of_angles(mass: Callable[[Panels], Array], coarse: FlowMap, fine: FlowMap) -> Array:
    """sqrt E_{rho_0} |Phi - Phi'|^2 at every time, on the panels that are finer than those of both."""
    found = []
    for a, b in zip(coarse.frames, fine.frames, strict=True):
        panels = a.panels.united(b.panels)
        weight = mass(panels)
        chord = 2 * np.sin((a.panels.read(a.theta, panels) - b.panels.read(b.theta, panels)) / 2)
        found.append(math.sqrt(float((weight * chord**2).sum() / weight.sum())))
    return np.array(found)


def _accuracies(tol: float, cheap: bool = True) -> Iterator[tuple[float, float]]:
    """Misplaced mass allowed, and width of the panels: cheap runs, then such that W2 = 2 sqrt(dp) is below tol."""
    if not cheap:
        yield max(tol**2, LEAST_MASS), 6.0
    elif tol < 5e-3:
        yield 1e-3 * tol, 6.0
        yield 1e-4 * tol, 5.0  # left out when the first run was torn: it would be in vain
    for share, width in ((0.3, 5.5), (0.06, 4.5), (0.02, 4.0), (2e-3, 4.0), (2e-4, 4.0), (2e-5, 4.0)):
        yield max(share * tol**2, LEAST_MASS), width
        if share * tol**2 <= LEAST_MASS and width == 4.0:
            return
