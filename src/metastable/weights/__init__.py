"""The weights of attention heads, and how they change in time.

head: the matrices (V, B); schedule: weights as a function of time.
"""

from metastable.weights.head import AttentionWeights
from metastable.weights.schedule import Schedule

__all__ = ["AttentionWeights", "Schedule"]
