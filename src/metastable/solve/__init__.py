"""Integration on the sphere: `solve`, its steppers, events, and `Path` with its storage."""

from metastable.solve.events import Crossing, Event
from metastable.solve.path import Path
from metastable.solve.solve import METHODS, solve
from metastable.solve.storage import load

__all__ = ["METHODS", "Crossing", "Event", "Path", "load", "solve"]
