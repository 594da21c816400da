"""Claims of arXiv:2605.16747, propagation of chaos with a finite context, forward and backward."""

from metastable.papers.chaos import backward, circle, depth, derivatives, descent, forward, general, rough, sides
from metastable.papers.claim import Claim

CLAIMS: tuple[Claim, ...] = (
    *forward.CLAIMS,
    *general.CLAIMS,
    *rough.CLAIMS,
    *depth.CLAIMS,
    *derivatives.CLAIMS,
    *backward.CLAIMS,
    *descent.CLAIMS,
    *sides.CLAIMS,
    *circle.CLAIMS,
)
