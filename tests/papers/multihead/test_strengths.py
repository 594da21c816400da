import pytest

from metastable.papers.multihead.strengths import UNEQUAL
from metastable.theory.scalar_heads import critical_beta
from small_claims import small_verdict


def test_strengths_that_are_compared_have_one_sum():
    assert [sum(m) for m in UNEQUAL] == pytest.approx([2.0] * len(UNEQUAL))


def test_bisection_finds_the_critical_beta():
    for row in small_verdict("opposite-heads").table:
        assert row["beta found"] == pytest.approx(critical_beta(row["m"], row["mu"], row["g"]), rel=1e-5)


def test_golden_rate_of_unequal_heads():
    rows = [
        row for row in small_verdict("super-additive-rates").table if (row["g"], row["m"]) == (0.5, "1.5 and 0.5")
    ]
    assert round(rows[0]["rate"], 4) == 3.8175 and round(rows[0]["rate"] / rows[0]["gain"], 4) == 3.2974


def test_runs_lie_on_the_lines_of_the_reduction():
    series = small_verdict("unequal-heads-cluster-sooner").figure.series
    for line, points in zip(series[::2], series[1::2], strict=True):
        assert line.colour == points.colour
        assert [line.y[50], line.y[90]] == pytest.approx(list(points.y), rel=1e-6)
