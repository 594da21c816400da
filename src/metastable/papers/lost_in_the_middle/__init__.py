"""Claims of arXiv:2605.09213, causal tokens on the circle and the U of what they remember; and on spheres."""

from metastable.papers.claim import Claim
from metastable.papers.lost_in_the_middle import beyond, depths, shapes, simulation

CLAIMS: tuple[Claim, ...] = (*simulation.CLAIMS, *depths.CLAIMS, *shapes.CLAIMS, *beyond.CLAIMS)
