"""Claims of arXiv:2605.04279, gradient flow structure of multi-head attention; experiments are in this folder."""

from metastable.papers.claim import Claim
from metastable.papers.multihead import (
    clustering_times,
    competition,
    energies,
    entropy,
    equiangular,
    single_heads,
    strengths,
)

CLAIMS: tuple[Claim, ...] = (
    *energies.CLAIMS,
    *single_heads.CLAIMS,
    *competition.CLAIMS,
    *equiangular.CLAIMS,
    *strengths.CLAIMS,
    *entropy.CLAIMS,
    *clustering_times.CLAIMS,
)
