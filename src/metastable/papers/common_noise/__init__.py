"""Synchronisation by noise [arXiv:2604.26898]: random layers of a transformer, and what their limit does to tokens.

Of the paper the statements are its own that random transformers have a stochastic limit, that common noise
synchronises tokens, and that the interaction energy falls exponentially where the noise is coercive; the formulas
for rates, exponents and thresholds are metastable's estimates.
"""

from metastable.papers.common_noise import attention, exponents, limits, means, synchronisation, two_point

CLAIMS = (
    *two_point.CLAIMS,
    *synchronisation.CLAIMS,
    *exponents.CLAIMS,
    *means.CLAIMS,
    *attention.CLAIMS,
    *limits.CLAIMS,
)
