"""metastable: transformer tokens as particles on a sphere.

weights -> flow -> solve -> Path -> observe / transport -> theory -> verdict, report
"""

from metastable import observe, sphere
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
from metastable.weights import AttentionWeights, Schedule

__all__ = [
    "AttentionWeights",
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
    "load",
    "observe",
    "solve",
    "sphere",
]
