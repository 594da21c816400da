"""Whose statement a claim is.

Known of the paper: that the total energy grows when scores are symmetric and values aligned; that radial shadows
obstruct the growth of single energies, even for orthogonal heads; super-additive rates of unequal heads; the orders
O(n) and O(n log d) of clustering times in the linearised dynamics; that entropy grows while tokens cluster.
Identities, thresholds and constants are metastable's estimates: the paper's formulas may differ.
"""

from metastable.papers.verdict import ESTIMATE

__all__ = ["ESTIMATE", "PAPER"]

PAPER = "arXiv:2605.04279"
