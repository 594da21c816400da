import math

import numpy as np
import pytest
import torch

from metastable.flows import CommonNoise
from metastable.papers.common_noise.pairs import distance, extrapolated, mean_and_error, pairs


def test_pairs_are_as_far_apart_as_asked():
    for apart in (1e-9, 1e-3, 0.7, 1.6):
        start = pairs(3, 4, apart)
        assert start.shape == (3, 2, 4)
        assert distance(start.points) == pytest.approx(apart, rel=1e-6)


def test_extrapolation_removes_the_first_order():
    """E<x_t, x_0> = e^{-(d-1) t/2} of one token of a constant noise, from few steps."""
    start = pairs(20_000, 3, 0.5)
    found = extrapolated(
        CommonNoise(activation="constant"), start, 0.2, 0.05, 3, lambda x: x[:, 0, 0].numpy(), "euler-maruyama"
    )
    mean, error = mean_and_error(found.values)
    left, noise = mean_and_error(found.left)
    assert abs(mean - math.exp(-0.2)) < 4 * error + abs(left)
    assert abs(left) < 4 * noise + 0.003


def test_mean_and_error():
    mean, error = mean_and_error(np.array([1.0, 3.0, 1.0, 3.0]))
    assert mean == 2.0 and error == pytest.approx(math.sqrt(4 / 3) / 2)
    assert torch.is_tensor(pairs(1, 2, 0.1).points)
