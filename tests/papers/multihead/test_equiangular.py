import numpy as np
import pytest

from metastable.theory.scalar_heads import dominance_threshold
from small_claims import small_verdict


def test_tokens_stay_equiangular():
    assert max(row["spread of overlaps"] for row in small_verdict("equiangular-heads").table) < 1e-9


def test_the_reduction_is_drawn_as_a_function_through_the_points_of_the_runs():
    series = small_verdict("equiangular-heads").figure.series
    for line, points in zip(series[::2], series[1::2], strict=True):
        assert len(line.x) > 100 and line.colour == points.colour
        assert np.allclose(np.interp(points.x, line.x, line.y), points.y, atol=1e-4)


def test_dominance_begins_and_ends_in_one_run():
    table = small_verdict("radial-dominance-threshold").table
    assert [row["dominance"] for row in table if row["beta"] == 1.7] == ["begins", "ends"]
    for row in table:
        assert dominance_threshold(row["n"], row["heads"], row["g"]) == pytest.approx(row["beta"], rel=1e-6)


def test_energies_grow_where_dominance_fails():
    for row in small_verdict("scalar-heads-need-no-dominance").table:
        assert row["beta"] > row["largest beta_RD for m = 1"] and row["least margin"] < 0 < row["least share"]
