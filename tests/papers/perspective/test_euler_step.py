import pytest

from metastable.papers.perspective.euler_step import rate_of
from small_claims import small_verdict


def test_the_rate_of_euler_tends_to_that_of_the_flow():
    assert rate_of(1e-9) == pytest.approx(1.0) and rate_of(0.1) == pytest.approx(1.0536, abs=1e-4)


def test_rates_are_those_of_the_table():
    for row in small_verdict("euler-step").table:
        assert row["rate"] == pytest.approx(row["expected"], rel=1e-4)
