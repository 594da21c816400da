"""The Brownian motion of a run: its law, refinement, any order of steps, times inside steps."""

import math

import pytest
import torch

from metastable.solve.brownian import Brownian


def test_increments_are_independent_normals_of_variance_h():
    h, count = 0.01, 4000
    path = Brownian(3, h, (2,))
    drawn = torch.stack([path.increment(k) for k in range(count)]) / math.sqrt(h)
    error = 1 / math.sqrt(count)
    assert drawn.mean(0).abs().max() < 4 * error
    assert (drawn.var(0) - 1).abs().max() < 4 * math.sqrt(2) * error
    for lag in (1, 2, 4):
        assert (drawn[lag:] * drawn[:-lag]).mean(0).abs().max() < 4 * error
    assert (drawn[:, 0] * drawn[:, 1]).mean().abs() < 4 * error
    assert float((drawn**4).mean()) == pytest.approx(3.0, abs=4 * math.sqrt(96 / (2 * count)))


@pytest.mark.parametrize("h", [0.01, 0.1, 1 / 3, 1.0, 7.0])
def test_halving_the_step_refines_the_path(h):
    coarse, fine, finest = (Brownian(5, h / 2**j, (3,)) for j in range(3))
    for k in (0, 1, 5, 1000):
        parts = sum(finest.increment(4 * k + i) for i in range(4))
        assert torch.allclose(fine.increment(2 * k) + fine.increment(2 * k + 1), coarse.increment(k), atol=1e-13)
        assert torch.allclose(parts, coarse.increment(k), atol=1e-13)


def test_steps_in_any_order_and_from_a_new_start_are_the_same():
    forward = Brownian(9, 0.02, (4,))
    row = [forward.increment(k) for k in range(60)]
    backward = Brownian(9, 0.02, (4,))
    assert all(torch.equal(backward.increment(k), row[k]) for k in reversed(range(60)))
    assert all(torch.equal(Brownian(9, 0.02, (4,)).increment(k), row[k]) for k in (0, 17, 59))
    assert torch.equal(forward.fresh(7, (2, 2)), Brownian(9, 0.02, (1,)).fresh(7, (2, 2)))


def test_seeds_steps_and_signs_differ():
    drawn = [Brownian(seed, 0.01, (1,)).increment(0) for seed in (0, 1, -1, 2**63, -(2**63), 10**30)]
    drawn += [Brownian(0, 0.01, (1,)).increment(1), Brownian(0, 0.01, (1,)).fresh(0, (1,))]
    assert len({float(x) for x in drawn}) == len(drawn)


def test_inside_a_step_the_path_goes_on():
    path, fine = Brownian(2, 0.25, (2,)), Brownian(2, 0.0625, (2,))
    assert torch.allclose(path.increment(3, 0.25, 0.75), fine.increment(13) + fine.increment(14), atol=1e-14)
    assert torch.allclose(path.increment(3, 0.0, 0.3) + path.increment(3, 0.3, 1.0), path.increment(3), atol=1e-14)
    bridge = Brownian(1, 1.0, (2000,)).increment(0, 0.0, 0.3)
    assert float(bridge.var()) == pytest.approx(0.3, abs=4 * 0.3 * math.sqrt(2 / 2000))


def test_more_rows_begin_with_the_same_rows():
    few, many = Brownian(1, 0.1, (3, 2)), Brownian(1, 0.1, (5, 2))
    assert torch.equal(many.increment(4)[:3], few.increment(4))
