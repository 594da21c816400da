"""Integration methods by name, and the choice among them; methods of one's own join with `register_stepper`."""

from __future__ import annotations

import inspect
import math
from typing import TypeVar

from metastable.arguments import shown
from metastable.errors import InvalidInput
from metastable.flows.common_noise import CommonNoise
from metastable.flows.flow import Flow
from metastable.solve.adaptive import Adaptive
from metastable.solve.dop853 import Dop853
from metastable.solve.euler import Euler
from metastable.solve.euler_maruyama import EulerMaruyama
from metastable.solve.exact import Exact
from metastable.solve.heun import Heun
from metastable.solve.layers import Layers
from metastable.solve.rk4 import RK4
from metastable.solve.stepper import Stepper
from metastable.solve.switching import Switching

METHODS: dict[str, type[Stepper]] = {}
"""Integration methods by name: adaptive 5(4), dop853 8(5,3), RK4 (order 4), Euler (order 1), exact (zero
temperature only), switching (Hardmax only), euler-maruyama, heun and layers (weak order 1, flows with noise), and
those that were registered."""

CROSSING = 2e-3
"""Largest tolerance rtol + atol for which "auto" takes the pair of order 8 rather than that of order 5: from
1e-3 down, the coarsest that benchmarks/pairs.py measures, it needs fewer (0.86 times at 1e-3, 0.56 at 1e-8)."""

S = TypeVar("S", bound=Stepper)


def register_stepper(kind: type[S]) -> type[S]:
    """Make a subclass of `Stepper` known under its `name`, for `solve(method=name)`; usable as a decorator."""
    if not (isinstance(kind, type) and issubclass(kind, Stepper)):
        raise InvalidInput(f"a stepper must be a subclass of Stepper, got {shown(kind)}")
    if missing := sorted(getattr(kind, "__abstractmethods__", ())):
        raise InvalidInput(f"the stepper {kind.__name__} must give {', '.join(missing)}")
    try:
        inspect.signature(kind).bind()
    except TypeError:
        raise InvalidInput(
            f"the stepper {kind.__name__} needs arguments, so that its name is not enough; pass one as method="
        ) from None
    name = getattr(kind, "name", None)
    if not isinstance(name, str) or name in ("", "auto"):
        raise InvalidInput(f"the stepper {kind.__name__} needs a name, a word other than 'auto', got {shown(name)}")
    known = METHODS.get(name)
    # The same class again is a cell of a notebook that runs twice.
    if known is not None and (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise InvalidInput(
            f"the name {shown(name)} belongs to the stepper {known.__name__} already; choose another"
        )
    METHODS[name] = kind
    return kind


for _kind in (Adaptive, Dop853, RK4, Euler, Exact, Switching, EulerMaruyama, Heun, Layers):
    register_stepper(_kind)


def choose_stepper(flow: Flow, method: str | Stepper, step: float | None, tolerance: float = math.inf) -> Stepper:
    """The stepper of that name, or the stepper itself; "auto" reads what methods and flow declare.

    tolerance: rtol + atol of the run; infinite where rounding would show in a step of order 8.
    """
    if isinstance(method, Stepper):
        stepper = method
        if not isinstance(getattr(stepper, "name", None), str):
            raise InvalidInput(f"the stepper {type(stepper).__name__} needs a name")
    elif isinstance(method, str) and method == "auto" and isinstance(flow, CommonNoise):
        stepper = METHODS["layers" if flow.width is not None else "heun" if flow.features else "euler-maruyama"]()
    elif isinstance(method, str) and method == "auto":
        exact = (kind() for kind in METHODS.values() if kind.exact)
        fallback = "rk4"
        if step is None:
            pair = "dop853" if tolerance <= CROSSING else "adaptive"
            fallback = pair if flow.smooth else "switching" if Switching().refusal(flow) is None else "rk4"
        stepper = next((s for s in exact if s.refusal(flow) is None), None) or METHODS[fallback]()
    elif not isinstance(method, str) or method not in METHODS:
        raise InvalidInput(f"unknown method {shown(method)}; choose from auto, {', '.join(METHODS)}")
    else:
        stepper = METHODS[method]()
    if flow.stochastic and not stepper.stochastic:
        noisy = ", ".join(name for name, kind in METHODS.items() if kind.stochastic)
        raise InvalidInput(f"method {shown(stepper.name)} knows no noise; choose from auto, {noisy}")
    if (reason := stepper.refusal(flow)) is not None:
        raise InvalidInput(reason)
    return stepper
