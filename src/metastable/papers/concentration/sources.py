"""Whose statement a claim is.

Of the paper only the statement of its theorem is its own here. Everything sharper, rates, constants, exponents,
exit times, is metastable's estimate and says so.
"""

from metastable.papers.verdict import ESTIMATE

__all__ = ["ESTIMATE", "PAPER"]

PAPER = "arXiv:2605.10931"
