from metastable.papers import PAPERS
from metastable.papers.perspective import sources


def test_only_what_papers_state_is_theirs():
    theirs = {claim.name: claim.source for claim in PAPERS["perspective"].claims if not claim.ours}
    assert theirs["number-of-clusters"] == sources.WAVES
    assert theirs["exponentially-long"] == theirs["energy-staircase"] == sources.METASTABILITY
    assert set(theirs.values()) <= {sources.CODE, sources.WAVES, sources.METASTABILITY, sources.SYNCHRONISATION}
