"""metastable: transformer tokens as particles on a sphere.

weights -> flow -> solve -> Path -> observe / transport -> theory -> verdict, report

Rooms and names are imported when they are first asked for: `import metastable` costs nothing, and a simulation
loads only what it needs.
"""

import importlib as _importlib
import typing as _typing

from metastable._version import __version__

if _typing.TYPE_CHECKING:
    from metastable import (
        arguments,  # noqa: F401 - no public name, but type checkers follow `from metastable import arguments`
        attention,
        drawing,
        encoders,
        errors,
        flows,
        meanfield,
        monitor,
        observe,
        papers,
        spectral,
        sphere,
        theory,
        transport,
    )
    from metastable.attention import attend
    from metastable.audit import audit
    from metastable.flows import (
        Causal,
        CommonNoise,
        Drift,
        EuclideanAttention,
        Flow,
        Hardmax,
        MultiHead,
        SelfAttention,
        UnnormalizedAttention,
        ZeroTemperature,
    )
    from metastable.measure import Ensemble, Measure
    from metastable.monitor import Monitor
    from metastable.papers import verify
    from metastable.solve import Event, Observer, Path, Stepper, load, register_stepper
    from metastable.solve.gradient import Gradient, gradient
    from metastable.solve.simulation import Simulation
    from metastable.solve.solve import solve
    from metastable.transport import Distance, wasserstein
    from metastable.weights import AttentionWeights, Schedule

__all__ = [
    "AttentionWeights",
    "Causal",
    "CommonNoise",
    "Distance",
    "Drift",
    "Ensemble",
    "EuclideanAttention",
    "Event",
    "Flow",
    "Gradient",
    "Hardmax",
    "Measure",
    "Monitor",
    "MultiHead",
    "Observer",
    "Path",
    "Schedule",
    "SelfAttention",
    "Simulation",
    "Stepper",
    "UnnormalizedAttention",
    "ZeroTemperature",
    "__version__",
    "attend",
    "attention",
    "audit",
    "drawing",
    "encoders",
    "errors",
    "flows",
    "gradient",
    "load",
    "meanfield",
    "monitor",
    "observe",
    "papers",
    "register_stepper",
    "solve",
    "spectral",
    "sphere",
    "theory",
    "transport",
    "verify",
    "wasserstein",
]

_HOME = {
    "attend": "attention",
    **dict.fromkeys(
        ("Causal", "CommonNoise", "Drift", "EuclideanAttention", "Flow", "Hardmax", "MultiHead"), "flows"
    ),
    **dict.fromkeys(("SelfAttention", "UnnormalizedAttention", "ZeroTemperature"), "flows"),
    **dict.fromkeys(("Ensemble", "Measure"), "measure"),
    "Monitor": "monitor",
    "verify": "papers",
    **dict.fromkeys(("Event", "Gradient", "Observer", "Path", "Stepper"), "solve"),
    **dict.fromkeys(("gradient", "load", "register_stepper"), "solve"),
    "Simulation": "solve.simulation",
    **dict.fromkeys(("Distance", "wasserstein"), "transport"),
    **dict.fromkeys(("AttentionWeights", "Schedule"), "weights"),
}
"""The room that a public name comes from; a name that is not here is a room itself."""


def __getattr__(name: str) -> object:
    """Import a room, or a name from its room, when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module 'metastable' has no attribute {name!r}")
    if name not in _HOME:
        return _importlib.import_module(f"metastable.{name}")
    value = getattr(_importlib.import_module(f"metastable.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
