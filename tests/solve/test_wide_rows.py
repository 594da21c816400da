"""Passes over rows: products with matrices that may be diagonal, errors, and all of a step in one call."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.attention.direct import product_address
from metastable.rowwise import largest_damped
from metastable.solve.wide_rows import error_rows, factor, times
from metastable.solve.wide_trial import WideTrial
from metastable.threads import blas_can_be_held


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("matrix", [random(7, 7), torch.diag(random(7))])
@pytest.mark.parametrize("turned", [False, True])
def test_products_with_a_matrix_that_may_be_diagonal(matrix, turned):
    rows, out = random(5, 7, seed=1), np.empty((5, 7))
    held, diagonal = factor(matrix)
    assert diagonal == (len(held) == 1)
    times(product_address(), rows.numpy(), held, diagonal, turned, out)
    expected = rows @ (matrix.T if turned else matrix)
    assert np.allclose(out, expected.numpy(), rtol=0, atol=1e-14 * 7 * float(matrix.abs().max()))


def test_errors_of_rows_are_those_of_the_loop_over_stages():
    y, stages, weights = torch.nn.functional.normalize(random(6, 9), dim=1), random(3, 6, 9, seed=1), random(2, 3)
    found = np.empty(6)
    error_rows(0, 6, y.numpy(), stages.numpy(), weights.numpy(), 0.01, found)
    assert math.isclose(found.max(), largest_damped(y, stages, weights, 0.01), rel_tol=1e-12)


@pytest.mark.parametrize(("n", "d", "beta", "equal"), [(150, 20, 8.0, True), (150, 33, 900.0, False)])
def test_a_step_in_one_call_has_the_digits_of_its_stages(n, d, beta, equal, monkeypatch):
    """Rows in two blocks, masses, scores that are shifted and some that are not."""
    B = torch.eye(d, dtype=torch.float64) + random(d, d) / (4 * d) ** 0.5
    flow = ms.SelfAttention(ms.AttentionWeights(V=random(d, d, seed=1), B=B), beta)
    rho = ms.Measure(ms.sphere.uniform(n, d, seed=1), None if equal else np.linspace(1.0, 2.0, n))
    whole = ms.solve(flow, rho, 0.5, times=np.linspace(0, 0.5, 5))
    monkeypatch.setattr(WideTrial, "_shared", lambda self: True)
    staged = ms.solve(flow, rho, 0.5, times=np.linspace(0, 0.5, 5))
    assert torch.equal(whole.points, staged.points)
    assert whole.provenance["statistics"] == staged.provenance["statistics"]


@pytest.mark.skipif(not blas_can_be_held(), reason="threads would share a BLAS that cannot be held")
def test_digits_are_those_of_several_threads():
    flow = ms.SelfAttention(ms.AttentionWeights(V=random(64, 64), B=random(64, 64, seed=1) / 8), 4.0)
    rho = ms.Measure(ms.sphere.uniform(600, 64, seed=3))
    threads, ends = torch.get_num_threads(), []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            ends.append(ms.solve(flow, rho, 0.02).end.points)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*ends)
