"""The mean-field limit n = infinity: the continuity equation on the sphere, solved with a known error."""

from metastable.meanfield.axial import AxialPath, solve_axial
from metastable.meanfield.axisymmetric import axial_disorder, axisymmetric_nodes
from metastable.meanfield.density import DensityPath, evolve_density
from metastable.meanfield.law import Density, Empirical, Law
from metastable.meanfield.laws import (
    Harmonics,
    Mixture,
    Skewed,
    Symmetrized,
    Uniform,
    VonMisesFisher,
    reference_skew,
)
from metastable.meanfield.limit import LimitCurve, distance_to_limit, limit_mass, two_atom_distance
from metastable.meanfield.nodes import nodes
from metastable.meanfield.path import MeanFieldPath
from metastable.meanfield.polar import polar_nodes
from metastable.meanfield.solve import solve, solve_flow

__all__ = [
    "AxialPath",
    "Density",
    "DensityPath",
    "Empirical",
    "Harmonics",
    "Law",
    "LimitCurve",
    "MeanFieldPath",
    "Mixture",
    "Skewed",
    "Symmetrized",
    "Uniform",
    "VonMisesFisher",
    "axial_disorder",
    "axisymmetric_nodes",
    "distance_to_limit",
    "evolve_density",
    "limit_mass",
    "nodes",
    "polar_nodes",
    "reference_skew",
    "solve",
    "solve_axial",
    "solve_flow",
    "two_atom_distance",
]
