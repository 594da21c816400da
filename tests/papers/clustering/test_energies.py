import numpy as np
import pytest

from metastable.papers import Setting
from metastable.papers.clustering.energies import energy_figure, matrices, softmax_experiment
from small_claims import small_verdict


@pytest.mark.parametrize("name", ["energy-unnormalised", "energy-softmax"])
def test_the_identity_closes_to_the_digits_of_the_integrator(name):
    verdict = small_verdict(name)
    assert verdict.measured < 1e-10 and min(rival.measured for rival in verdict.rivals) > 1e-2


def test_matrices_are_symmetric_and_of_both_signs():
    for seed in range(4):
        setting = Setting(seed=seed)
        drawn = [B for name, B in matrices(setting).items() if name != "identity"]
        assert all(np.array_equal(B, B.T) for B in drawn)
        assert any(np.linalg.eigvalsh(B).min() < -0.1 < 0.1 < np.linalg.eigvalsh(B).max() for B in drawn)
        assert all(np.linalg.norm(B, 2) == pytest.approx(1.0) for B in drawn)
        assert all(np.abs(B - B.T).max() > 0.1 for B in matrices(setting, symmetric=False).values())


def test_the_integral_is_drawn_on_the_energy():
    series = energy_figure(softmax_experiment(Setting(small=True, seed=2))).series
    for line, points in zip(series[::2], series[1::2], strict=True):
        assert line.colour == points.colour
        assert np.interp(points.x, line.x, line.y) == pytest.approx(points.y, abs=2e-2 * np.ptp(line.y))
