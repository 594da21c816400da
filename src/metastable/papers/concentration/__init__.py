"""Claims of arXiv:2605.10931, concentration in the low-temperature regime; every experiment is in this folder."""

from metastable.papers.claim import Claim
from metastable.papers.concentration import (
    curves,
    decay_rates,
    floor,
    great_circle,
    modes,
    phases,
    plateau,
    special_weights,
    terminal,
    tokens,
    zero_temperature,
)

CLAIMS: tuple[Claim, ...] = (
    *phases.CLAIMS,
    *curves.CLAIMS,
    *zero_temperature.CLAIMS,
    *decay_rates.CLAIMS,
    *floor.CLAIMS,
    *plateau.CLAIMS,
    *terminal.CLAIMS,
    *great_circle.CLAIMS,
    *modes.CLAIMS,
    *special_weights.CLAIMS,
    *tokens.CLAIMS,
)
