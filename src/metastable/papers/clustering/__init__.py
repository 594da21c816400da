"""Claims of arXiv:2504.14697, quantitative clustering in mean field; every experiment is in this folder."""

from metastable.papers.claim import Claim
from metastable.papers.clustering import (
    antipodal,
    atoms,
    closed_family,
    density_rates,
    energies,
    generic,
    token_regimes,
)

CLAIMS: tuple[Claim, ...] = (
    *generic.CLAIMS,
    *density_rates.CLAIMS,
    *closed_family.CLAIMS,
    *token_regimes.CLAIMS,
    *energies.CLAIMS,
    *antipodal.CLAIMS,
    *atoms.CLAIMS,
)
