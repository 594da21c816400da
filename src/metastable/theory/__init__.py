"""Theory: what the spectrum of M = V B^T and of V says about the flow, before any simulation."""

from metastable.theory.eigenspace import Dominant, dominant
from metastable.theory.limit import ExceptionalTokens, LimitMap, comoving_target, limit, limit_map
from metastable.theory.spectrum import Assumption, Spectrum, spectrum
from metastable.theory.zero_temperature import clock, coupling_to_limit, distance_to_limit, zero_temperature

__all__ = [
    "Assumption",
    "Dominant",
    "ExceptionalTokens",
    "LimitMap",
    "Spectrum",
    "clock",
    "comoving_target",
    "coupling_to_limit",
    "distance_to_limit",
    "dominant",
    "limit",
    "limit_map",
    "spectrum",
    "zero_temperature",
]
