import math

import numpy as np
import pytest
import torch

from metastable import meanfield, sphere
from metastable.errors import InvalidInput
from metastable.measure import Measure


@pytest.mark.parametrize("pole", [[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [1.0, -2.0, 0.5]])
def test_moments_of_a_smooth_density_are_exact(pole):
    c = torch.tensor([0.3, -0.2, 0.4], dtype=torch.float64)

    def density(x):
        return 1 + x @ c + 0.5 * (x[:, 0] * x[:, 1])

    rho = meanfield.polar_nodes(density, pole, reach=4.0)
    points, weight = sphere.product_gauss(8)
    exact = Measure(points, density(points) * weight)
    for degree in (1, 2, 3):
        found = (rho.mass[:, None] * rho.points**degree).sum(0)
        assert found.numpy() == pytest.approx((exact.mass[:, None] * exact.points**degree).sum(0).numpy(), abs=3e-6)


def test_nodes_reach_the_pole():
    pole = torch.tensor([0.6, 0.0, 0.8], dtype=torch.float64)
    for reach in (2.0, 8.0):
        rho = meanfield.polar_nodes(meanfield.Uniform(3), pole, reach, longitudes=8)
        apart = torch.linalg.vector_norm(rho.points - pole, dim=1)
        assert float(apart.min()) < math.exp(-reach) and float(rho.mass.sum()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "given",
    [
        *({"pole": bad} for bad in (None, [0.0, 0.0, 0.0], [1.0, 0.0], "north", [math.nan, 1.0, 0.0], 3)),
        *({"reach": bad} for bad in (-1, math.inf, None, "x", 1e9)),
        *({"longitudes": bad} for bad in (2, 2.5, None, 10**9)),
        *({"density": bad} for bad in (None, 3, lambda x: -np.ones(len(x)), lambda x: x, meanfield.Uniform(2))),
        {"density": Measure([[1.0, 0.0, 0.0]])},
    ],
)
def test_malformed_nodes_are_sentences(given):
    with pytest.raises(InvalidInput) as refused:
        meanfield.polar_nodes(**{"density": meanfield.Uniform(3), "pole": [0.0, 0.0, 1.0]} | given)
    assert len(str(refused.value)) < 200
