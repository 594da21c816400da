import math

import numpy as np
import pytest
from scipy import stats

from metastable import sphere
from metastable.papers import Setting
from metastable.papers.concentration.exits import (
    ARC,
    B_1,
    ESCAPE,
    QUARTER_ERROR,
    RIVAL_SLOPES,
    beta_tolerance,
    cluster_exits,
    count_tolerance,
    exit_figure,
    measured_cell,
    nodes_on_arcs,
    on_arcs,
    quarter_left,
    sampling_error,
    weighted_slope,
)
from metastable.papers.concentration.families import competing
from metastable.papers.concentration.measuring import run


def test_a_cluster_leaves_when_its_median_passes_one_half_for_good():
    path = run(competing(), 5.0, sphere.uniform(100, 2, seed=1), np.linspace(0, 12, 49), rtol=1e-5)
    for sign, t in zip((1.0, -1.0), cluster_exits(path.times.numpy(), path.points), strict=True):
        assert 1.0 < t < 12.0
        middle = path.points[:, path.points[0][:, 0] * sign > 0, 1].median(1).values.abs()
        assert bool((middle[path.times > t] >= 0.5).all())


def test_a_cluster_that_has_not_left_is_censored_and_not_counted_as_early():
    path = run(competing(), 5.0, sphere.uniform(100, 2, seed=1), np.linspace(0, 2, 9), rtol=1e-4)
    assert np.isinf(cluster_exits(path.times.numpy(), path.points)).all()
    full = np.arange(1.0, 102.0)
    assert quarter_left(full) == quarter_left(np.where(full > 60, math.inf, full)) == 26.0


def test_the_standard_error_is_that_of_the_first_quartile_of_a_logarithm_of_a_gaussian():
    z = stats.norm.ppf(1 - 0.25 / 2)
    assert pytest.approx(math.sqrt(0.25 * 0.75) / (2 * z * stats.norm.pdf(z)), abs=5e-4) == QUARTER_ERROR
    rng = np.random.default_rng(0)
    found = [quarter_left(-np.log(np.abs(rng.standard_normal(101)))) for _ in range(2000)]
    assert np.std(found) * math.sqrt(101) == pytest.approx(QUARTER_ERROR, abs=0.05)


def test_the_escape_rate_is_that_of_the_weights():
    V = competing().V
    assert float(V[1, 1] - V[0, 0]) == ESCAPE
    assert float(competing().B[0, 0]) == B_1
    assert RIVAL_SLOPES["beta"](1.0)["crossing alone"] == 1.0


def test_tokens_start_on_the_arcs():
    for points in (on_arcs(500, seed=3), nodes_on_arcs(500).points):
        angle = np.arctan((points[:, 1] / points[:, 0]).numpy())
        assert np.abs(angle).max() <= ARC + 1e-12 and np.std(angle) == pytest.approx(ARC / math.sqrt(3), rel=0.1)
        assert 200 < int((points[:, 0] > 0).sum()) < 300


def test_tolerances_follow_from_the_design():
    """Twice the starts, and the sampling part falls by sqrt(2)."""
    assert sampling_error((1, 10), 40) == pytest.approx(math.sqrt(2) * sampling_error((1, 10), 80))
    full, quick = Setting(), Setting(quick=True)
    assert count_tolerance(full) < count_tolerance(quick) < 1 and beta_tolerance(full) < beta_tolerance(quick)


def test_a_weighted_line_is_found_with_its_error():
    x = np.array([0.0, 1.0, 2.0])
    assert weighted_slope(x, 3 * x + 1, np.ones(3)) == pytest.approx((3.0, 1 / math.sqrt(2)))


def test_one_cell_stands_beside_phase_times():
    row, exits = measured_cell(60, 5.0, range(2), 3.0)
    assert row["clusters"] == len(exits) == 4 and row["phase_times"] > 0


def test_the_theory_is_drawn_as_a_function():
    from metastable.papers import Outcome

    x = np.array([5.0, 15.0])
    curves = {"x": x, "n": np.full(2, 400.0), "exits 0": x, "exits 1": x, "a quarter has left": x}
    curves |= {"predicted on": np.linspace(5, 15, 9), "predicted": np.linspace(5, 8, 9)}
    series = exit_figure(Outcome(1.0, curves=curves)).series
    assert len(series[2].x) == 9 and series[1].colour == series[2].colour
