"""Whose statement a claim is.

Of the paper its statements in words are its own here: the unnormalised flow is the gradient flow of the energy, and
at small beta regular densities converge exponentially to an atom. Rates, constants and times are ours.
"""

from metastable.papers.verdict import ESTIMATE

__all__ = ["ESTIMATE", "PAPER"]

PAPER = "arXiv:2504.14697"
