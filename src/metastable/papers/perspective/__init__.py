"""Claims of arXiv:2312.10794, a mathematical perspective on transformers, and of its successors."""

from metastable.papers.claim import Claim
from metastable.papers.perspective import (
    cross_ratio,
    equiangular,
    euclidean,
    euler_step,
    high_dimension,
    long_context,
    merging,
    negative_beta,
    phase_diagram,
    repulsion,
    synchronisation,
    waves,
)

CLAIMS: tuple[Claim, ...] = (
    *phase_diagram.CLAIMS,
    *synchronisation.CLAIMS,
    *euler_step.CLAIMS,
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
