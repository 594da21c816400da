"""Papers as software: their claims, the experiments that test them, and the verdicts."""

from metastable.papers.claim import FAILS, HOLDS, INCONCLUSIVE, Claim, Outcome, Setting, Verdict
from metastable.papers.page import write_report
from metastable.papers.paper import PAPERS, Paper, claims_of
from metastable.papers.run import verdicts, verify

__all__ = [
    "FAILS",
    "HOLDS",
    "INCONCLUSIVE",
    "PAPERS",
    "Claim",
    "Outcome",
    "Paper",
    "Setting",
    "Verdict",
    "claims_of",
    "verdicts",
    "verify",
    "write_report",
]
