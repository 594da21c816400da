"""The monitor as a service: texts over HTTP, metrics, spans, a log, a live page."""

from metastable.monitor.service.app import application
from metastable.monitor.service.state import Service

__all__ = ["Service", "application"]
