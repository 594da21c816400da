import numpy as np
import pytest
import torch

from metastable.flows import HeadDescent
from metastable.papers.scheduled_heads.protocol import resting, tokens
from metastable.papers.scheduled_heads.stability import gronwall
from small_claims import small_verdict


@pytest.mark.parametrize("seed", range(6))
def test_the_rate_bounds_the_derivative_of_the_field(seed):
    """Change of the velocity under random tangent shifts, in the largest norm of any token."""
    process = resting(1.0, 4, 3, seed)
    flow, rho = HeadDescent(process), tokens(9, 3, seed)
    x = rho.points
    rate = gronwall(process)[1] / process.step
    drawn = torch.from_numpy(np.random.default_rng(seed).standard_normal((20, 9, 3)))
    bound = max(
        (2 * torch.linalg.matrix_norm(process(t), ord=2) * (1 + torch.linalg.matrix_norm(process(t), ord=2))).mean()
        for t in (0.0, float(process.times[1]))
    )
    assert rate <= bound * (1 + 1e-12)
    largest = 2 * (lambda norm: norm * (1 + norm))(torch.linalg.matrix_norm(process(0.0), ord=2)).mean()
    for shift in drawn:
        tangent = shift - (shift * x).sum(1, keepdim=True) * x
        tangent = tangent / tangent.norm(dim=1).max()
        moved = [torch.nn.functional.normalize(x + s * tangent, dim=1) for s in (1e-5, -1e-5)]
        field = [flow.velocity(0.0, points, rho.mass) for points in moved]
        change = (field[0] - field[1]) / 2e-5
        along = change - (change * x).sum(1, keepdim=True) * x  # the covariant derivative
        assert float(along.norm(dim=1).max()) <= float(largest)


def test_small_shifts_grow_in_proportion():
    assert "of order 0.9" in small_verdict("stability-tokens", "scheduled-heads").note


def test_the_orders():
    assert small_verdict("stability-weights", "scheduled-heads").measured == pytest.approx(0.5, abs=0.05)
    assert small_verdict("euler-strong-order", "scheduled-heads").measured == pytest.approx(1.0, abs=0.25)
