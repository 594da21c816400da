"""Claims of arXiv:2312.10794, a mathematical perspective on transformers, and of its successors."""

from metastable.papers.claim import Claim
from metastable.papers.perspective import (
    cross_ratio,
    equiangular,
    euclidean,
    high_dimension,
    long_context,
    merging,
    negative_beta,
    repulsion,
    waves,
)

CLAIMS: tuple[Claim, ...] = (
    *equiangular.CLAIMS,
    *high_dimension.CLAIMS,
    *cross_ratio.CLAIMS,
    *waves.CLAIMS,
    *merging.CLAIMS,
    *negative_beta.CLAIMS,
    *repulsion.CLAIMS,
    *long_context.CLAIMS,
    *euclidean.CLAIMS,
)
