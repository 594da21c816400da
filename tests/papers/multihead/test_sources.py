import re

from metastable.papers import PAPERS
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
