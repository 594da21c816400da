"""Claims of arXiv:2605.10931, concentration in the low-temperature regime; every experiment is in this folder.

Of the paper only the statement of the theorem is its own here (source arXiv:2605.10931). Everything sharper, rates,
constants, exponents, exit times, is metastable's estimate and says so.
"""

from metastable.papers.claim import Claim
from metastable.papers.concentration import cases, curves, floor, phases, terminal, tokens, zero_temperature

CLAIMS: tuple[Claim, ...] = (
    *phases.CLAIMS,
    *curves.CLAIMS,
    *zero_temperature.CLAIMS,
    *floor.CLAIMS,
    *terminal.CLAIMS,
    *cases.CLAIMS,
    *tokens.CLAIMS,
)
