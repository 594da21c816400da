import pytest

from metastable.papers import Setting
from metastable.papers.concentration.decay_rates import FULL_GAP, full_gap_experiment
from small_claims import small_verdict


def test_the_rate_is_that_of_the_slower_of_the_two_ways_to_E():
    rows = {row["weights"]: row for row in small_verdict("zero-temperature-rate").table}
    assert rows["I"]["measured rate"] == pytest.approx(0.5, rel=2e-3)  # half the gap: tokens near E^perp
    assert rows["C"]["measured rate"] == pytest.approx(1 / 3, rel=2e-3)  # g_in: tokens near E


def test_dim_E_decides_between_half_the_gap_and_all_of_it():
    outcome = full_gap_experiment(Setting())
    rates = {(row["d"], row["dim E"]): row["measured rate / g"] for row in outcome.table}
    assert all(rates[case] == pytest.approx(1.0, abs=1e-3) for case in FULL_GAP)
    assert rates[4, 1] == pytest.approx(0.5, abs=1e-3)
