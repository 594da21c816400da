"""Papers as software: their claims, the experiments that test them, and the verdicts."""

from metastable.papers.claim import FAILS, HOLDS, INCONCLUSIVE, Claim, Finding, Setting, Verdict
from metastable.papers.drawing import Drawing, Lines, PhaseMap, Portrait, Series
from metastable.papers.run import PAPERS, Paper, select, verdicts, verify

__all__ = [
    "FAILS",
    "HOLDS",
    "INCONCLUSIVE",
    "PAPERS",
    "Claim",
    "Drawing",
    "Finding",
    "Lines",
    "Paper",
    "PhaseMap",
    "Portrait",
    "Series",
    "Setting",
    "Verdict",
    "select",
    "verdicts",
    "verify",
]
