import numpy as np

from metastable.monitor.weighing import WEIGHTS, weighted_sum


def test_the_sum_is_weighted_by_name() -> None:
    rows = np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 1.0]])
    np.testing.assert_allclose(weighted_sum(rows, ("win", "odd", "emb")), [1 + 2 * 2 + 3 * 0.25, 0.25])


def test_weights_are_those_of_channels_and_of_nothing_else(monitor) -> None:
    assert set(WEIGHTS) <= set(monitor.channels)
    assert all(weight > 0 for weight in WEIGHTS.values())
