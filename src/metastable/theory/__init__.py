"""Theory: what the spectrum of M = V B^T and of V says about the flow, before any simulation."""

from metastable.theory.zero_temperature import clock, zero_temperature

__all__ = ["clock", "zero_temperature"]
