"""Claims of arXiv:2604.26085, spectral selection by weights Q^T K = V = V^T; every experiment is in this folder."""

from metastable.papers.claim import Claim
from metastable.papers.spectral_selection import (
    alignment,
    bipolar,
    energy,
    mixtures,
    polarisation,
    stability,
    thresholds,
)

CLAIMS: tuple[Claim, ...] = (
    *stability.CLAIMS,
    *energy.CLAIMS,
    *alignment.CLAIMS,
    *polarisation.CLAIMS,
    *thresholds.CLAIMS,
    *mixtures.CLAIMS,
    *bipolar.CLAIMS,
)
