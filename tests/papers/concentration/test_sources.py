from metastable.papers import PAPERS, claims_of
from metastable.papers.concentration.sources import ESTIMATE, PAPER


def test_a_claim_is_the_paper_s_or_metastable_s():
    assert all(claim.source in (PAPER, ESTIMATE) for claim in claims_of("concentration"))
    assert f"arXiv:{PAPERS['concentration'].arxiv}" == PAPER == "arXiv:2605.10931"
