"""Claims of arXiv:2605.10931, concentration in the low-temperature regime; every experiment is in this folder."""

from metastable.papers.claim import Claim
from metastable.papers.concentration import (
    curves,
    decay_rates,
    departures,
    exits,
    floor,
    great_circle,
    modes,
    phases,
    plateau,
    run_out,
    special_weights,
    sphere_floor,
    terminal,
    tokens,
    zero_temperature,
)

CLAIMS: tuple[Claim, ...] = (
    *phases.CLAIMS,
    *curves.CLAIMS,
    *sphere_floor.CLAIMS,
    *zero_temperature.CLAIMS,
    *decay_rates.CLAIMS,
    *floor.CLAIMS,
    *departures.CLAIMS,
    *exits.CLAIMS,
    *plateau.CLAIMS,
    *terminal.CLAIMS,
    *great_circle.CLAIMS,
    *modes.CLAIMS,
    *special_weights.CLAIMS,
    *run_out.CLAIMS,
    *tokens.CLAIMS,
)
