"""Attention by the pairs that count and polynomials, against the dense formula; the stated error holds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from metastable.attention import KERNELS, Operands
from metastable.attention.nearby.attend import attend_nearby, linear_map, nearby_cost
from metastable.errors import InvalidInput


def tokens(kind: str, n: int, d: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    if kind == "clusters":
        centres = rng.normal(size=(3, d))
        x = centres[rng.integers(3, size=n)] + 0.05 * x
    elif kind == "poles":  # two points almost, as a run ends, and one token between them
        x = np.where(rng.random((n, 1)) < 0.5, 1.0, -1.0) * np.eye(d)[0] + 1e-5 * x
        x[0] = np.eye(d)[1]
    elif kind == "one point":
        x = np.repeat(x[:1], n, axis=0)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def asked(kind: str, n: int, d: int, beta: float, seed: int = 0) -> Operands:
    rng = np.random.default_rng(seed + 1)
    x = torch.from_numpy(tokens(kind, n, d, seed))
    mass = torch.from_numpy(10.0 ** rng.uniform(-3, 0, n))
    return Operands(x @ torch.from_numpy(rng.normal(size=(d, d))), x, x, mass, beta)


def off(found: tuple[torch.Tensor, torch.Tensor, float], operands: Operands) -> float:
    exact = KERNELS["dense"](operands)
    return max(
        float((found[0] - exact.mean).norm(dim=1).max()), float((found[1] - exact.log_partition).abs().max())
    )


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("kind", ["uniform", "clusters", "poles", "one point"])
@pytest.mark.parametrize("beta", [0.0, 0.5, 8.0, 100.0, 2000.0])
def test_the_stated_error_holds(d, kind, beta):
    for rtol in (1e-4, 1e-9):
        operands = asked(kind, 700, d, beta)
        found = attend_nearby(operands, rtol)
        assert off(found, operands) <= found[2] <= rtol


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 63, 64, 65, 129])
def test_any_number_of_tokens(n):
    for d in (2, 3):
        operands = asked("uniform", n, d, 30.0, seed=n)
        found = attend_nearby(operands, 1e-10)
        assert off(found, operands) <= found[2] <= 1e-10


def test_queries_of_their_own_number_and_lengths():
    rng = np.random.default_rng(3)
    for d in (2, 3):
        keys = asked("clusters", 500, d, 40.0)
        queries = torch.from_numpy(rng.normal(size=(301, d)) * 10.0 ** rng.uniform(-3, 1, (301, 1)))
        operands = Operands(queries, keys.keys, keys.keys, keys.mass, 40.0)
        found = attend_nearby(operands, 1e-8)
        assert off(found, operands) <= found[2] <= 1e-8
        empty = Operands(queries[:0], keys.keys, keys.keys, keys.mass, 40.0)
        assert attend_nearby(empty, 1e-8)[0].shape == (0, d)


@pytest.mark.parametrize(("n", "d", "beta"), [(1500, 3, 50.0), (5000, 2, 50.0), (9000, 3, 1.0)])
def test_threads_change_nothing(n, d, beta):
    """Lists, arcs and harmonics."""
    operands = asked("clusters", n, d, beta)
    before = torch.get_num_threads()
    answers = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        answers.append(attend_nearby(operands, 1e-8))
    torch.set_num_threads(before)
    assert torch.equal(answers[0][0], answers[1][0]) and torch.equal(answers[0][1], answers[1][1])


def test_queries_that_no_matrix_makes_of_the_keys_have_no_arcs():
    keys = tokens("uniform", 400, 2, 0)
    A = np.array([[1.0, 0.5], [-0.2, 0.8]])
    np.testing.assert_allclose(linear_map(keys, keys @ A.T, 1e-9), A, atol=1e-14)
    assert linear_map(keys, keys @ A.T + 1e-9 * keys**2, 1e-9) is None
    assert linear_map(np.repeat(keys[:1], 400, axis=0), keys, 1e-9) is None


def test_no_tolerance_below_rounding_is_promised():
    operands = asked("uniform", 1500, 3, 5000.0)
    assert nearby_cost(operands, 1e-6) < float("inf")
    assert nearby_cost(operands, 1e-11) == float("inf")


def test_refusals():
    x = torch.eye(4, dtype=torch.float64)
    with pytest.raises(InvalidInput, match="needs keys in two or three dimensions"):
        attend_nearby(Operands(x, x, x, torch.ones(4, dtype=torch.float64), 1.0), 1e-6)
    y = 1.1 * torch.eye(3, dtype=torch.float64)
    with pytest.raises(InvalidInput, match="needs unit keys"):
        attend_nearby(Operands(y, y, y, torch.ones(3, dtype=torch.float64), 1.0), 1e-6)
