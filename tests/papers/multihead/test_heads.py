import numpy as np
import pytest
import torch

from metastable import Measure, sphere
from metastable.papers.multihead.heads import (
    misaligned,
    orthogonal,
    overlaps,
    resolved,
    run,
    scalar,
    softmax,
    symmetric,
    together,
    total_energy,
)
from metastable.papers.running import equiangular, gauss


def test_random_heads_are_symmetric_and_of_norm_one():
    heads = symmetric(5, 3, seed=1)
    assert len(heads) == 3 and all(np.array_equal(M, M.T) for M in heads)
    assert [np.linalg.norm(M, 2) for M in heads] == pytest.approx([1.0] * 3)


@pytest.mark.parametrize("count", [2, 3])
def test_orthogonal_heads_are_projectors_that_lean_by_the_tilt(count):
    heads = orthogonal(6, count, seed=2)
    assert all(np.allclose(M @ M, M) and np.trace(M) == pytest.approx(6 / count) for M in heads)
    assert max(np.abs(heads[0] @ M).max() for M in heads[1:]) < 1e-14
    leaning = orthogonal(6, count, seed=2, tilt=0.01)
    assert all(np.allclose(M @ M, M) for M in leaning)
    assert 0.004 < np.linalg.norm(leaning[0] @ leaning[1], 2) < 0.03


def test_the_flow_is_that_of_the_paper_with_its_factor():
    """x_i' = P (1/n) sum_h f_i^h with f_i^h = sum_j e^{beta <x_i, M_h x_j>} M_h x_j, and E is what it climbs."""
    n, d, beta = 7, 4, 1.3
    M, x = symmetric(d, 3, seed=3), sphere.uniform(n, d, seed=4)
    v = sum(torch.exp(beta * x @ torch.from_numpy(A) @ x.T) @ x @ torch.from_numpy(A) for A in M) / n
    v = v - (v * x).sum(1, keepdim=True) * x
    flow = together(M, beta)
    assert (flow.velocity(0.0, *Measure(x)) - v).abs().max() < 1e-13
    path = run(flow, x, [0.0, 0.01])
    E = sum(np.exp(beta * x.numpy() @ A @ x.numpy().T).sum() for A in M) / (2 * beta * n**2)
    assert total_energy(M, beta, path)[0] == pytest.approx(E, rel=1e-13)
    assert flow.energy(*path.measure(1)) == pytest.approx(total_energy(M, beta, path)[1], rel=1e-13)


def test_other_heads_differ_in_one_thing_each():
    M, values = symmetric(3, 2, seed=1), symmetric(3, 2, seed=2)
    rho = Measure(sphere.uniform(5, 3, seed=1))
    plain = together(M, 1.0).velocity(0.0, *rho)
    assert torch.equal(misaligned(M, M, 1.0).velocity(0.0, *rho), plain)
    for other in (misaligned(M, values, 1.0), softmax(M, 1.0)):
        assert (other.velocity(0.0, *rho) - plain).abs().max() > 1e-2


def test_equiangular_tokens_and_their_overlap():
    x = equiangular(6, -0.1)
    path = run(together(scalar(6, (1.0,)), 0.0), x, [0.0, 1e-9])
    assert torch.allclose(x @ x.T, 1.1 * torch.eye(6, dtype=torch.float64) - 0.1)
    assert overlaps(path)[0] == pytest.approx(-0.1, abs=1e-14)


def test_gauss_points_integrate_what_heads_do_in_the_resolved_time():
    for heads, beta in ((1, 0.5), (3, 2.0)):
        t, rate = resolved(heads, beta), heads * np.exp(beta) * (2 + beta)
        times, weights = gauss(t)
        assert times[0] == 0 and times[-1] == t and (np.diff(times) > 0).all()
        assert weights @ np.exp(-rate * times) == pytest.approx(-np.expm1(-rate * t) / rate, rel=1e-12)
