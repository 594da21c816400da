import json
import math

import numpy as np
import pytest

from fuzz.papers import CASES
from metastable.errors import InvalidInput
from metastable.papers import ESTIMATE, Claim, Outcome, passed
from metastable.papers.verdict import decide, excess
from sample_claims import FIELDS, counted

RIVALS = {"two": "It is two.", "half": "It is one half."}


def claim(**changes):
    return Claim("c", "s", counted, 1.0, **FIELDS | changes)


def verdict(measured, error=0.0, rivals=None, **changes):
    made = claim(rivals={name: RIVALS[name] for name in rivals or ()}, **changes)
    return made.judge(Outcome(measured, uncertainty=error, rivals=rivals or {}))


def test_the_rule_is_symmetric():
    """What holds about an expectation fails about its mirror image: the same distance, the same two errors."""
    rng = np.random.default_rng(0)
    for outside, error, allowed in rng.uniform(0, 1, (500, 3)):
        found = decide(outside, error, allowed)
        mirrored = decide(2 * allowed - outside, error, allowed)
        expected = {"holds": "fails", "fails": "holds", "inconclusive": "inconclusive"}[found]
        assert mirrored == expected or outside == allowed
    assert decide(0.1, 0.0, 0.1) == "holds" and decide(math.nextafter(0.1, 1), 0.0, 0.1) == "fails"
    assert decide(math.nan, 0.0, 0.1) == decide(0.0, math.nan, 0.1) == decide(-math.inf, 0, 0) == "inconclusive"
    assert decide(math.inf, 0.0, 0.1) == "fails"


def test_an_inequality_that_is_met_by_far_needs_no_tolerance():
    assert excess(0.5, 1.0, "at most") == -0.5 and excess(3.0, 1.0, "at least") == -2.0
    assert verdict(0.5, error=0.2, relation="at most", tolerance=0.0).holds
    assert verdict(0.7, error=0.2, relation="at most", tolerance=0.0).verdict == "inconclusive"


def test_a_rival_that_is_not_excluded_makes_the_claim_inconclusive():
    assert verdict(1.0, rivals={"two": 2.0}).holds
    alive = verdict(1.0, rivals={"two": 2.0, "half": (0.7, 0.11)})
    assert alive.verdict == "inconclusive" and alive.note == "the experiment does not exclude 'half'"
    assert [rival.verdict for rival in alive.rivals] == ["fails", "inconclusive"]
    assert [rival.fails for rival in alive.rivals] == [True, False]
    assert "'two'" in verdict(1.0, rivals={"two": 1.05}).note  # a rival that holds as well
    assert verdict(3.0, rivals={"two": 2.0}).fails


def test_a_rival_that_was_not_measured_is_not_excluded():
    found = claim(rivals=RIVALS).judge(Outcome(1.0, rivals={"two": 2.0}))
    assert found.verdict == "inconclusive" and "half" in found.note
    assert found.rival.name == "half" and math.isnan(found.rival.measured)


def test_the_rival_shown_is_the_one_nearest_to_passing():
    assert verdict(1.0, rivals={"two": 2.0, "half": 0.5}).rival.name == "half"
    assert verdict(1.0, rivals={"two": (2.0, 0.4), "half": 0.5}).rival.name == "two"
    assert verdict(1.0).rival is None


def test_an_open_claim_is_shown_as_open_and_does_not_stop_the_others():
    waiting = verdict(2.0, open="nobody knows")
    assert waiting.standing == "open" and waiting.fails and waiting.open == "nobody knows"
    assert verdict(1.0, open="nobody knew").standing == "holds"
    assert passed([verdict(1.0), waiting])
    for bad in (verdict(2.0), verdict(math.nan)):
        assert not passed([verdict(1.0), bad])
    assert not passed([])


def test_an_open_claim_whose_experiment_broke_off_is_not_passed():
    stopped = claim(open="hard").judge(Outcome(math.nan, inconclusive="it stopped", stopped=True))
    assert stopped.standing == "inconclusive" and not passed([verdict(1.0), stopped])


def test_whose_claim_it_is():
    assert verdict(1.0, source=ESTIMATE).ours and claim(source=ESTIMATE).ours
    assert not verdict(1.0, source="arXiv:0000.00000").ours


def test_rivals_are_plain_for_json():
    found = verdict(1.0, rivals={"two": (np.float64(2.0), 0.25), "half": math.inf}, open="why")
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["rivals"][0] == {
        "name": "two", "statement": "It is two.", "measured": 2.0, "uncertainty": 0.25, "verdict": "fails",
        "fails": True,
    }  # fmt: skip
    assert plain["rivals"][1]["measured"] is None and plain["rival"] == "two"
    assert plain["standing"] == "holds" and plain["ours"] is False and plain["warnings"] == []


@pytest.mark.parametrize("verdicts", [None, 3, "abc", [1], {"a": 1}, [[]]])
def test_passed_takes_verdicts_and_nothing_else(verdicts):
    with pytest.raises(InvalidInput, match="verdicts must be a sequence of verdicts"):
        passed(verdicts)


def test_the_judge_follows_the_rule_in_random_cases():
    assert not [said for seed in range(300) if (said := CASES["judge"](seed))]
