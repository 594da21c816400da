"""metastable: transformer tokens as particles on a sphere.

weights -> flow -> solve -> Path -> observe / transport -> theory -> verdict, report
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from metastable import observe, sphere, theory, transport
from metastable._version import __version__
from metastable.attention import attend
from metastable.flows import (
    EuclideanAttention,
    Flow,
    Hardmax,
    MultiHead,
    SelfAttention,
    UnnormalizedAttention,
    ZeroTemperature,
)
from metastable.measure import Measure
from metastable.solve import Event, Path, load, solve
from metastable.transport import Distance, wasserstein
from metastable.weights import AttentionWeights, Schedule

if TYPE_CHECKING:
    from metastable import audit, encoders, meanfield
    from metastable.papers import verify

__all__ = [
    "AttentionWeights",
    "Distance",
    "EuclideanAttention",
    "Event",
    "Flow",
    "Hardmax",
    "Measure",
    "MultiHead",
    "Path",
    "Schedule",
    "SelfAttention",
    "UnnormalizedAttention",
    "ZeroTemperature",
    "__version__",
    "attend",
    "audit",
    "encoders",
    "load",
    "meanfield",
    "observe",
    "solve",
    "sphere",
    "theory",
    "transport",
    "verify",
    "wasserstein",
]

_LAZY = {
    "audit": "metastable.audit",
    "encoders": "metastable.encoders",
    "meanfield": "metastable.meanfield",
    "verify": "metastable.papers",
}


def __getattr__(name: str) -> Any:
    """Rooms that a simulation does not need are imported when they are first asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module 'metastable' has no attribute {name!r}")
    module = import_module(_LAZY[name])
    return module if module.__name__ == f"metastable.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
