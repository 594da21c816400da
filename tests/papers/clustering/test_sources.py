import pytest

from metastable.papers import PAPERS, claims_of, passed, verify
from metastable.papers.clustering.sources import ESTIMATE, PAPER


def test_names_are_unique_and_every_claim_says_whose_it_is():
    claims = claims_of("clustering")
    assert len({claim.name for claim in claims}) == len(claims)
    for claim in claims:
        assert claim.source in (PAPER, ESTIMATE), claim.name
        statement, reason = claim.words()
        assert statement.endswith(".") and reason and claim.theme and claim.unit, claim.name
        assert "the paper proves" not in statement
    assert PAPERS["clustering"].claims == claims
    assert f"arXiv:{PAPERS['clustering'].arxiv}" == PAPER == "arXiv:2504.14697"


def test_only_what_is_known_of_the_paper_is_attributed_to_it():
    named = {claim.name for claim in claims_of("clustering") if claim.source == PAPER}
    assert named == {"small-beta-exponential", "energy-unnormalised"}


@pytest.mark.slow
def test_a_quick_run_passes(tmp_path):
    verdicts = verify("clustering", quick=True, out=tmp_path)
    assert passed(verdicts), [(v.claim, v.verdict, v.note) for v in verdicts if not v.holds]
    assert all(rival.fails for v in verdicts for rival in v.rivals)
