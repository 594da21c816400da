import re

import pytest

from metastable.papers import PAPERS, passed, verify
from metastable.papers.multihead.sources import ESTIMATE, PAPER


def test_what_is_the_paper_s_own_is_what_is_known_of_it():
    """Orders and signs that the paper states; every identity, threshold and constant is metastable's estimate."""
    claims = PAPERS["multihead"].claims
    assert PAPERS["multihead"].arxiv in PAPER and {claim.source for claim in claims} == {PAPER, ESTIMATE}
    own = [claim.name for claim in claims if claim.source == PAPER]
    assert own == [
        "multihead-energy-grows",
        "single-head-energy-falls",
        "unequal-heads-cluster-sooner",
        "entropy-rises-to-ln-n",
        "relu-time-grows-with-log-d",
    ]
    assert not any(re.search("identity|threshold", name) for name in own)


def test_every_claim_is_whole():
    for claim in PAPERS["multihead"].claims:
        statement, reason = claim.words()
        assert statement.endswith(".") and reason and claim.theme and claim.unit, claim.name
        assert "the paper proves" not in statement


@pytest.mark.slow
def test_a_quick_run_passes(tmp_path):
    verdicts = verify("multihead", quick=True, out=tmp_path)
    assert passed(verdicts), [(v.claim, v.verdict, v.note) for v in verdicts if not v.holds]
    assert all(rival.fails for v in verdicts for rival in v.rivals)
