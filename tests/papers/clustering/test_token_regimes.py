import pytest

from metastable.papers import Setting
from metastable.papers.clustering.token_regimes import departure_experiment, departure_figure
from small_claims import small_verdict


def test_tokens_follow_the_density_and_then_fall_at_rate_two():
    table = small_verdict("tokens-two-rates").table
    assert all(row["rate after"] == pytest.approx(2.0, abs=2e-3) for row in table)
    compared = [row for row in table if "rate before" in row]
    assert compared
    assert all(row["rate before"] == pytest.approx(row["of the density then"], rel=1e-3) for row in compared)


def test_the_last_departure_is_drawn_on_its_line():
    outcome = departure_experiment(Setting(small=True))
    assert outcome.measured == pytest.approx(1.0, abs=0.05)
    series = departure_figure(outcome).series
    for points, line in zip(series[::2], series[1::2], strict=True):
        assert points.colour == line.colour and points.y[-1] == pytest.approx(line.y[-1])
