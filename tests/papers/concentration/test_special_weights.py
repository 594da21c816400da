import pytest

from metastable.papers import Setting, verify
from metastable.papers.concentration.special_weights import oblique_experiment


@pytest.mark.parametrize("name", ["jordan-block", "negative-eigenvalues"])
def test_fast_claims_hold(name):
    (verdict,) = verify("concentration", quick=True, claims=[name], jobs=1)
    assert verdict.holds, (verdict.measured, verdict.note)
    assert verdict.figure is not None and verdict.figure.title


def test_the_orthogonal_projector_misplaces_tokens_that_the_oblique_one_does_not():
    outcome = oblique_experiment(Setting(quick=True))
    assert outcome.measured > 0.99
    assert max(row["wrong with the orthogonal projector"] for row in outcome.table) > 0.05
