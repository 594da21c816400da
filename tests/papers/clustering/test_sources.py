from metastable.papers import PAPERS, claims_of
from metastable.papers.clustering.sources import ESTIMATE, PAPER


def test_only_what_is_known_of_the_paper_is_attributed_to_it():
    claims = claims_of("clustering")
    assert all(claim.source in (PAPER, ESTIMATE) for claim in claims)
    assert f"arXiv:{PAPERS['clustering'].arxiv}" == PAPER == "arXiv:2504.14697"
    named = {claim.name for claim in claims if claim.source == PAPER}
    assert named == {"small-beta-exponential", "energy-unnormalised"}
