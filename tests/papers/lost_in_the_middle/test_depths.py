import numpy as np
import pytest

from metastable.papers.lost_in_the_middle.depths import depth_of_loss, last_rise
from metastable.theory import critical_depth, retrieval_profile
from small_claims import small_verdict


def test_the_slope_of_many_tokens_is_that_of_the_closed_form():
    step = 1e-4
    end = np.asarray(retrieval_profile([1 - 2 * step, 1 - step, 1.0], 1.0))
    slope = (3 * end[2] - 4 * end[1] + end[0]) / (2 * step) / end[2]
    assert last_rise(20_000, 1.0, 1.0, 1.0) == pytest.approx(slope, abs=1e-3)


def test_depths_tend_to_the_critical_one_like_one_over_n():
    errors = [depth_of_loss(n, 1.0, 1.0) / critical_depth(1.0) - 1 for n in (200, 400)]
    assert errors[0] / errors[1] == pytest.approx(2.0, abs=0.1)


def test_tables_hold_every_case():
    assert len(small_verdict("critical-depth").table) == 12
    rows = small_verdict("primacy-diverges").table
    assert len(rows) == 9 and all(row["first token"] > row["S_t(1/n)"] for row in rows)
