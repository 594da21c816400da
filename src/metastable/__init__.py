"""metastable: transformer tokens as particles on a sphere.

weights -> flow -> solve -> Path -> observe / transport -> theory -> verdict, report
"""

from metastable import sphere
from metastable._version import __version__
from metastable.attention import attend
from metastable.measure import Measure
from metastable.weights import AttentionWeights, Schedule

__all__ = ["AttentionWeights", "Measure", "Schedule", "__version__", "attend", "sphere"]
