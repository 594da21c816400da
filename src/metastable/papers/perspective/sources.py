"""Whose statement a claim is.

The paper's own are the model and the published experiment; what its successors state is theirs. Equations, rates
and times are derived and checked here, and say so.
"""

from metastable.papers.verdict import ESTIMATE

__all__ = ["CODE", "ESTIMATE", "METASTABILITY", "SYNCHRONISATION", "WAVES"]

CODE = "arXiv:2312.10794"
"""A mathematical perspective on transformers, with its public code."""
SYNCHRONISATION = "arXiv:2405.18273"
"""d >= 3: tokens synchronise for every beta >= 0."""
WAVES = "arXiv:2410.23228"
"""The number of clusters that the uniform state breaks into."""
METASTABILITY = "arXiv:2410.06833"
"""Well separated clusters last exponentially long, and the energy is a staircase."""
