"""Wasserstein distances between measures on the sphere: exact, circle, few atoms, entropic, sliced, and bounds."""

from metastable.transport.bounds import bounds
from metastable.transport.distance import Bounds, Distance
from metastable.transport.ground import METRICS, ground_cost
from metastable.transport.subsphere import distance_to_subsphere
from metastable.transport.wasserstein import METHODS, wasserstein

__all__ = [
    "METHODS",
    "METRICS",
    "Bounds",
    "Distance",
    "bounds",
    "distance_to_subsphere",
    "ground_cost",
    "wasserstein",
]
