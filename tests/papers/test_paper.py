from dataclasses import replace

import pytest

from metastable.errors import InvalidInput
from metastable.papers import PAPERS, Setting, claims_of
from sample_claims import COUNTED


def test_unknown_names_are_answered_with_the_valid_ones():
    with pytest.raises(InvalidInput, match="unknown paper 'nonsense'; choose from concentration"):
        claims_of("nonsense")
    with pytest.raises(InvalidInput, match="unknown claim 'x'; choose from counted"):
        claims_of([COUNTED], ["x"])


def test_claims_keep_the_paper_s_order_whatever_order_they_are_asked_in():
    names = [claim.name for claim in claims_of("concentration")]
    assert [claim.name for claim in claims_of("concentration", [names[5], names[2]])] == [names[2], names[5]]
    assert claims_of([COUNTED]) == (COUNTED,)


@pytest.mark.parametrize("name", PAPERS)
def test_every_paper_can_be_run_by_name(name):
    paper = PAPERS[name]
    assert paper.name == name and paper.title and paper.authors and paper.arxiv
    assert paper.claims == claims_of(name) and len({claim.name for claim in paper.claims}) == len(paper.claims)


def test_a_wrong_expectation_fails():
    (claim,) = claims_of("concentration", ["identity-weights"])
    assert replace(claim, expected=0.5).judge(claim.experiment(Setting(quick=True))).verdict == "fails"
