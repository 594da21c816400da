import re
from dataclasses import replace

import pytest

from metastable.errors import InvalidInput
from metastable.papers import PAPERS, Setting, claims_of, passed, verify
from metastable.papers.paper import papers_of
from sample_claims import COUNTED
from small_claims import small_verdict


def test_unknown_names_are_answered_with_the_valid_ones():
    with pytest.raises(InvalidInput, match="unknown paper 'nonsense'; choose from concentration"):
        claims_of("nonsense")
    with pytest.raises(InvalidInput, match="unknown claim 'x'; choose from counted"):
        claims_of([COUNTED], ["x"])
    with pytest.raises(
        InvalidInput, match=r"choose from three-phases, .* \(\d+ in all: verify --list\)"
    ) as refused:
        claims_of("concentration", ["x"])
    assert len(str(refused.value)) < 200


def test_all_is_every_paper_and_names_of_claims_are_unique_over_them():
    assert [paper.name for paper in papers_of("all")] == list(PAPERS)
    assert claims_of("all") == tuple(claim for paper in PAPERS.values() for claim in paper.claims)


def test_two_claims_of_one_name_are_refused():
    with pytest.raises(InvalidInput, match="two claims are called 'counted'"):
        claims_of([COUNTED, COUNTED])


def test_claims_keep_the_paper_s_order_whatever_order_they_are_asked_in():
    names = [claim.name for claim in claims_of("concentration")]
    assert [claim.name for claim in claims_of("concentration", [names[5], names[2]])] == [names[2], names[5]]
    assert claims_of([COUNTED]) == (COUNTED,)


@pytest.mark.parametrize("name", PAPERS)
def test_every_paper_can_be_run_by_name(name):
    paper = PAPERS[name]
    assert paper.name == name and paper.title and paper.authors and paper.arxiv
    assert paper.claims == claims_of(name) and len({claim.name for claim in paper.claims}) == len(paper.claims)


CLAIMS = [claim for paper in PAPERS.values() for claim in paper.claims]


@pytest.mark.parametrize("name", PAPERS)
def test_every_claim_says_whose_it_is_and_all_that_a_page_shows(name):
    """A claim is metastable's estimate or names the paper that makes it; nothing is said to be proved by it."""
    for claim in PAPERS[name].claims:
        assert claim.ours or re.fullmatch(r"arXiv:\d{4}\.\d{5}.*", claim.source), (claim.name, claim.source)
        statement, reason = claim.words()
        assert statement.endswith(".") and reason and claim.theme and claim.unit, claim.name
        assert "the paper proves" not in statement
    assert not all(claim.ours for claim in PAPERS[name].claims)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPERS)
def test_a_quick_run_passes(name, tmp_path):
    verdicts = verify(name, quick=True, out=tmp_path)
    assert passed(verdicts), [(v.claim, v.verdict, v.note) for v in verdicts if not v.holds]
    assert all(rival.fails for v in verdicts for rival in v.rivals)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_every_claim_names_a_rival(claim):
    """A verdict is worth what it can exclude."""
    assert claim.rivals and all(sentence.endswith(".") for sentence in claim.rivals.values())


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_every_claim_holds_in_its_small_form_and_its_rivals_fail(claim):
    verdict = small_verdict(claim.name)
    assert verdict.holds or verdict.standing == "open", (verdict.measured, verdict.uncertainty, verdict.note)
    assert all(rival.fails for rival in verdict.rivals), verdict.rivals
    assert not verdict.warnings and (verdict.figure is None or verdict.figure.title)
    assert verdict.statement.endswith(".") and verdict.reason


@pytest.mark.parametrize(
    ("paper", "names"), [(None, None), (3, None), ([1], None), ({}, None), ("concentration", "x"), ([COUNTED], [1])]
)
def test_malformed_names_are_sentences(paper, names):
    with pytest.raises(InvalidInput) as refused:
        claims_of(paper, names)
    assert len(str(refused.value)) < 200


def test_a_wrong_expectation_fails():
    (claim,) = claims_of("concentration", ["identity-weights"])
    assert replace(claim, expected=0.5).judge(claim.experiment(Setting(quick=True))).verdict == "fails"
