"""The weights of attention heads, and how they change in time.

head: the matrices (V, B); target, ornstein_uhlenbeck: random symmetric weights; schedule: weights as a function of
time.
"""

from metastable.weights.head import AttentionWeights
from metastable.weights.ornstein_uhlenbeck import OrnsteinUhlenbeck
from metastable.weights.schedule import Schedule
from metastable.weights.target import Target

__all__ = ["AttentionWeights", "OrnsteinUhlenbeck", "Schedule", "Target"]
