"""Wasserstein distances between measures on the sphere: exact, circle, few atoms, entropic, sliced, and bounds."""

from metastable.transport.distance import Distance
from metastable.transport.ground import ground_cost
from metastable.transport.wasserstein import METHODS, wasserstein

__all__ = ["METHODS", "Distance", "ground_cost", "wasserstein"]
