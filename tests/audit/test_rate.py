"""k of n: Wilson's interval against scipy, and what may be said."""

from __future__ import annotations

import pytest
from scipy.stats import binomtest

from metastable.audit.rate import Rate


@pytest.mark.parametrize(("k", "n"), [(0, 5), (1, 5), (5, 5), (11, 16), (10, 16), (0, 1), (17, 24), (24, 24)])
def test_the_interval_is_wilsons(k, n):
    expected = binomtest(k, n).proportion_ci(method="wilson")
    rate = Rate.of(k, n)
    assert (rate.low, rate.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_verdicts():
    assert Rate.of(11, 16).verdict is None  # 44% to 86%
    assert Rate.of(18, 24).verdict is True and Rate.of(6, 24).verdict is False
    assert Rate.of(3, 3).verdict is None and Rate.of(0, 0).verdict is None
    assert Rate.of(20, 24).beats(Rate.of(2, 24)) and not Rate.of(20, 24).beats(Rate.of(15, 24))
    assert str(Rate.of(11, 16)) == "11 of 16 (44% to 86%)"
