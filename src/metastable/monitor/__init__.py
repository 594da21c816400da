"""The monitor: a calibrated early-warning signal on the traffic of an encoder."""

from metastable.monitor.monitor import Monitor
from metastable.monitor.score import ChannelScore, Mark, Score

__all__ = ["ChannelScore", "Mark", "Monitor", "Score"]
