"""Claims of arXiv:2605.16747, propagation of chaos with a finite context, forward and backward."""

from metastable.papers.chaos import forward
from metastable.papers.claim import Claim

CLAIMS: tuple[Claim, ...] = (*forward.CLAIMS,)
