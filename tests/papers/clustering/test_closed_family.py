import pytest
import torch

from metastable.meanfield import axisymmetric_nodes
from metastable.papers import Setting
from metastable.papers.clustering.closed_family import family_experiment, family_figure, in_all_directions
from metastable.theory import moebius
from small_claims import small_verdict


@pytest.mark.parametrize("d", [2, 3, 7])
def test_tokens_stand_in_all_directions_with_their_mean_on_the_axis(d):
    rho = in_all_directions(axisymmetric_nodes(d), d, seed=4)
    mean = rho.mass @ rho.points
    assert rho.d == d and float(mean[1:].abs().max()) < 1e-16
    assert float(mean[0]) == pytest.approx(moebius.order(0.5, d), abs=1e-12)
    assert torch.linalg.matrix_rank(rho.points) == d


def test_the_family_closes_to_the_digits_of_the_integrator():
    assert small_verdict("moebius-family").measured < 1e-8


def test_tokens_are_drawn_on_the_curve_of_their_dimension():
    outcome = family_experiment(Setting(small=True, seed=3))
    assert outcome.measured < 1e-8
    series = family_figure(outcome).series
    for line, points in zip(series[::2], series[1::2], strict=True):
        assert line.colour == points.colour and len(line.x) > len(points.x)
