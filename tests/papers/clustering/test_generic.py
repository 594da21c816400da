import math

import pytest
import torch

from metastable import sphere
from metastable.papers.clustering.generic import LOCATED, circle_density, separating_point, sphere_density
from small_claims import small_verdict


@pytest.mark.parametrize("seed", range(6))
def test_densities_are_positive_and_of_mass_one(seed):
    around, weight = sphere.product_gauss(40)
    assert float(sphere_density(seed)(around).min()) > 0.09
    assert float(weight @ sphere_density(seed)(around)) == pytest.approx(1.0)
    circle = circle_density(seed)(sphere.equispaced(400))
    assert float(circle.min()) > 0.19 and float(circle.mean()) == pytest.approx(1.0)


def test_the_separating_point_of_a_symmetric_density_is_its_antipode():
    axis = torch.tensor([0.6, 0.0, 0.8], dtype=torch.float64)
    found = separating_point(lambda x: 1 + 0.5 * (x @ axis), 0.3)
    assert (found + axis).abs().max() < math.exp(-LOCATED)


def test_rates_of_random_densities_are_good_to_a_percent():
    assert small_verdict("small-beta-rate").measured == pytest.approx(1.0, abs=5e-3)
    series = small_verdict("small-beta-rate").figure.series
    assert all(curve.colour == law.colour for curve, law in zip(series[::2], series[1::2], strict=True))
