"""Papers as software: their claims, the experiments that test them, and the verdicts."""

from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.page import write_report
from metastable.papers.paper import PAPERS, Paper, claims_of
from metastable.papers.run import examine, verdicts, verify
from metastable.papers.verdict import (
    ESTIMATE,
    FAILS,
    HOLDS,
    INCONCLUSIVE,
    OPEN,
    RivalVerdict,
    Verdict,
    passed,
)

__all__ = [
    "ESTIMATE",
    "FAILS",
    "HOLDS",
    "INCONCLUSIVE",
    "OPEN",
    "PAPERS",
    "Claim",
    "Outcome",
    "Paper",
    "RivalVerdict",
    "Setting",
    "Verdict",
    "claims_of",
    "examine",
    "passed",
    "verdicts",
    "verify",
    "write_report",
]
