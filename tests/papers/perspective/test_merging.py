import numpy as np
import pytest

from metastable.papers.perspective.merging import ANGLES, MASSES, pairs_of_clusters
from small_claims import small_verdict


def test_pairs_are_orthogonal_and_have_their_masses():
    rho, masses = pairs_of_clusters(ANGLES, 0)
    overlap = (rho.points[:6] @ rho.points[6:].T).abs().max()
    assert float(overlap) < 0.05
    assert masses.sum() == pytest.approx(1.0)
    assert (masses[:, 0] / masses[:, 1]).tolist() == pytest.approx([a / b for a, b in MASSES])


def test_merging_times():
    for row in small_verdict("merging-times").table:
        assert row["time of the tokens"] == pytest.approx(row["time of two clusters"], rel=1e-2)
    assert small_verdict("exponentially-long").holds


def test_the_staircase_has_a_step_at_every_merging():
    figure = small_verdict("energy-staircase").figure
    t, energy = figure.series[0].x, figure.series[0].y
    merged = np.array(list(figure.moments))
    assert len(merged) == 3 and (np.diff(energy) > -1e-6).all()
    before, after = np.interp(0.85 * merged, t, energy), np.interp(1.1 * merged, t, energy)
    assert (after - before > 0.05).all()
