import pytest

from metastable.papers import PAPERS, claims_of, verify
from metastable.papers.concentration.sources import ESTIMATE, PAPER


def test_names_are_unique_and_every_claim_says_whose_it_is():
    claims = claims_of("concentration")
    assert len({claim.name for claim in claims}) == len(claims)
    for claim in claims:
        assert claim.source in (PAPER, ESTIMATE), claim.name
        assert claim.statement.endswith(".") and claim.reason and claim.theme and claim.unit, claim.name
        assert "the paper proves" not in claim.statement
    assert PAPERS["concentration"].claims == claims
    assert f"arXiv:{PAPERS['concentration'].arxiv}" == PAPER == "arXiv:2605.10931"


@pytest.mark.slow
def test_quick_run_has_no_failing_claim(tmp_path):
    verdicts = verify("concentration", quick=True, out=tmp_path)
    assert not [v.claim for v in verdicts if v.verdict == "fails"]
    assert sum(v.holds for v in verdicts) >= len(verdicts) - 2
