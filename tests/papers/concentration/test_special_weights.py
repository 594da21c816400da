import numpy as np
import pytest

from metastable.papers.concentration.special_weights import (
    REPELLING,
    oblique_weights,
)
from metastable.theory import spectrum
from small_claims import small_verdict


def test_the_width_of_repelled_clusters_is_the_formula_s_for_every_pair_of_eigenvalues():
    verdict = small_verdict("negative-eigenvalues")
    assert [row["predicted"] for row in verdict.table] == pytest.approx([1.0, 0.5, 2.0, 1 / 3])
    for row in verdict.table:
        assert row["beta * variance"] == pytest.approx(row["predicted"], rel=0.0625)
    series = verdict.figure.series
    assert len(series) == 2 * len(REPELLING)
    assert [line.colour for line in series[::2]] == [line.colour for line in series[1::2]]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("d", [2, 3, 5])
def test_left_and_right_eigenvector_are_45_degrees_apart(d, seed):
    found = spectrum(oblique_weights(d, np.random.default_rng(seed)))
    assert found.M.value == pytest.approx(2.0) and found.M.projector_norm == pytest.approx(np.sqrt(2))


def test_the_approach_of_a_jordan_block_scales_with_its_corner_and_with_B():
    rows = small_verdict("jordan-block").table
    assert [row["t tan(angle)"] for row in rows] == pytest.approx([1.0, 0.5, 3.0, 2.0], rel=0.02)
