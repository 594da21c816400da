import numpy as np
import torch

from metastable.monitor.channels.windows import inside, worst_windows
from metastable.monitor.trace import Trace


def test_the_worst_window_is_found_by_looking_at_all_of_them() -> None:
    chance = np.random.default_rng(0)
    sizes = np.array([30, 0, 5, 1, 8, 17])
    told, weight = chance.random(sizes.sum()), chance.integers(1, 9, sizes.sum()).astype(float)
    values, begins = worst_windows(told, weight, sizes, 8)
    start = 0
    for b, n in enumerate(sizes):
        width = min(8, n)
        means = [
            told[start + i : start + i + width].sum() / weight[start + i : start + i + width].sum()
            for i in range(n - width + 1)
            if n
        ]
        assert abs(values[b] - (max(means) if means else 0.0)) < 1e-12
        assert begins[b] == (int(np.argmax(means)) if means else 0)
        start += n


def test_chosen_tokens_in_the_window_have_their_number() -> None:
    rows = [np.arange(6), np.arange(0), np.arange(3)]
    numbers = torch.tensor([[0, 2, 5], [0, 0, 0], [0, 1, 2]])
    mask = torch.tensor([[True] * 3, [False] * 3, [True] * 3])
    points = torch.zeros(2, 3, 3, 4)
    trace = Trace(points, points[:, :, 0], mask, numbers, np.array([6, 0, 3]), rows)
    told = np.arange(1.0, 10.0)
    found = inside(trace, told, np.array([1, 0, 1]), 2)
    assert found.tolist() == [[0, 3, 0], [0, 0, 0], [0, 8, 9]]
    assert not inside(trace, np.zeros(0), np.array([0, 0, 0]), 2).any()
