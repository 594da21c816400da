"""The monitor: a calibrated early-warning signal on the traffic of an encoder."""

from metastable.monitor.attachment import Attachment
from metastable.monitor.drift import Drift
from metastable.monitor.monitor import Monitor
from metastable.monitor.report import MonitorReport, report
from metastable.monitor.score import ChannelScore, Mark, Score
from metastable.monitor.stream import Stream

__all__ = ["Attachment", "ChannelScore", "Drift", "Mark", "Monitor", "MonitorReport", "Score", "Stream", "report"]
