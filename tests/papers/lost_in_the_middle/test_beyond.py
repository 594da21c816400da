import math

import pytest

from metastable.papers import ESTIMATE
from metastable.papers.lost_in_the_middle.beyond import CLAIMS, SOFTMAX, UNNORMALISED
from small_claims import small_verdict


def test_cases_are_below_the_depth_at_which_recency_is_lost_and_take_several_values():
    for cases in (UNNORMALISED, SOFTMAX):
        assert all(case.depth < 2 * -math.expm1(-case.alibi) for case in cases)
        assert all(len({case[i] for case in cases}) > 1 for i in range(4))


def test_claims_are_ours():
    assert all(claim.source == ESTIMATE for claim in CLAIMS)


@pytest.mark.parametrize("name", [claim.name for claim in CLAIMS])
def test_dots_lie_beside_their_lines(name):
    verdict = small_verdict(name, "lost-in-the-middle")
    dots, lines = verdict.figure.series[::2], verdict.figure.series[1::2]
    assert [one.colour for one in dots] == [one.colour for one in lines]
    assert all(one.error is not None for one in dots) and verdict.measured < 0.3
