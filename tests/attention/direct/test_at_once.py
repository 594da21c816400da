"""One compiled call does what the door, the choice and the kernel of two products do, with the same digits."""

from __future__ import annotations

import importlib
import math

import numpy as np
import pytest
import torch

from attention.attention_reference import check, tokens
from metastable.attention import attend
from metastable.attention.direct import LARGEST_SCORE, PRODUCTS, attend_at_once
from metastable.attention.operands import Operands


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)


def equal_masses(n: int) -> torch.Tensor:
    return torch.full((n,), 1.0 / n, dtype=torch.float64)


def unequal_masses(n: int) -> torch.Tensor:
    return torch.linspace(1.0, 3.0, n, dtype=torch.float64)


@pytest.mark.parametrize(
    ("n", "d"), [(1, 9), (7, 20), (70, 32), (130, 33), (200, 64), (600, 40), (530, 130), (90, 520)]
)
@pytest.mark.parametrize("mass", [equal_masses, unequal_masses], ids=["equal", "unequal"])
@pytest.mark.parametrize("same", [True, False])
def test_digits_are_those_of_the_kernel(n, d, mass, same):
    keys, m = tokens(n, d, "off-sphere", n), mass(n)
    queries = keys if same else tokens(n + 3, d, "uniform", 5)
    found = attend_at_once(queries, keys, keys, m, 3.0)
    assert found is not None
    expected = PRODUCTS(Operands(queries, keys, keys, m, 3.0))
    assert torch.equal(found[0], expected.mean) and torch.equal(found[1], expected.log_partition)
    check(attend(queries, keys, m, 3.0), queries, keys, keys, m, 3.0)


def test_arrays_whole_betas_and_a_tolerance_go_the_same_way(monkeypatch):
    x, m = tokens(30, 24, "uniform", 0), unequal_masses(30)
    expected = attend(x, x, m, 3.0)
    module = importlib.import_module("metastable.attention.attend")
    monkeypatch.setattr(module, "read_operands", None)  # nobody reads them twice
    array, masses = x.numpy(), m.numpy()
    for found in (
        attend(array, array, masses, 3.0),
        attend(array, x, m, 3.0),
        attend(x, x, m, 3),
        attend(x, x, m, 3.0, rtol=1e-6),
        attend(x, x, m, 3.0, values=array),
    ):
        assert torch.allclose(found.mean, expected.mean, rtol=0, atol=1e-15) and found.error is None
        assert found.kernel == "products"


@pytest.mark.parametrize("change", [np.asfortranarray, lambda x: x[::-1], lambda x: x.astype(">f8")])
def test_arrays_in_another_order_are_read_by_the_door(change):
    x, m = tokens(30, 24, "uniform", 0), equal_masses(30)
    given = change(x.numpy().copy())
    plain = torch.from_numpy(np.array(given, dtype=np.float64))
    check(attend(given, given, m, 3.0), plain, plain, plain, m, 3.0)
    fixed = x.numpy().copy()
    fixed.flags.writeable = False
    check(attend(fixed, fixed, m, 3.0), x, x, x, m, 3.0)


def test_some_of_the_keys_as_queries_are_not_the_keys():
    keys, m = tokens(60, 40, "off-sphere", 0), equal_masses(60)
    check(attend(keys[:20], keys, m, 3.0), keys[:20], keys, keys, m, 3.0)
    keys[-1] *= 50.0
    few, m = keys[:20], equal_masses(20)
    check(attend(keys, few, m, 3.0), keys, few, few, m, 3.0)


def test_masses_that_nobody_gave_have_the_digits_of_equal_ones():
    x = tokens(45, 37, "uniform", 0)
    given, left = attend(x, x, equal_masses(45), 2.0), attend(x, x, beta=2.0)
    assert torch.equal(given.mean, left.mean) and torch.equal(given.log_partition, left.log_partition)


def test_values_of_their_own_and_masses_that_nobody_gave():
    x, v = tokens(50, 12, "clustered", 0), tokens(50, 17, "uniform", 1)
    found = attend(x, x, values=v, beta=5.0)
    assert found.kernel == "products" and found.mean.shape == (50, 17)
    check(found, x, x, v, equal_masses(50), 5.0)
    half = v[:, :12].contiguous()
    check(attend(x, x, values=half, beta=5.0), x, x, half, equal_masses(50), 5.0)


@pytest.mark.parametrize("which", ["queries", "keys", "values", "mass"])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, 1e200])
def test_what_is_not_finite_is_left_to_the_door(which, wrong):
    given = {"queries": tokens(20, 10, "uniform", 0), "keys": tokens(20, 10, "uniform", 1)}
    given |= {"values": tokens(20, 10, "uniform", 2), "mass": equal_masses(20)}
    given[which] = given[which].clone()
    given[which].view(-1)[-1] = wrong
    assert attend_at_once(*given.values(), 1.0) is None


@pytest.mark.parametrize("mass", [0.0, -1.0, 1e-120])
def test_masses_that_need_care_are_left_to_the_door(mass):
    x, m = tokens(20, 10, "uniform", 0), equal_masses(20)
    m[3] = mass
    assert attend_at_once(x, x, x, m, 1.0) is None


def test_scores_that_need_a_shift_are_left_to_the_kernel():
    x, m = tokens(20, 10, "uniform", 0), equal_masses(20)
    assert attend_at_once(x, x, x, m, 0.99 * LARGEST_SCORE) is not None
    assert attend_at_once(x, x, x, m, 1.01 * LARGEST_SCORE) is None
    check(attend(x, x, m, 1000.0), x, x, x, m, 1000.0)


def test_work_that_threads_would_share_is_left_to_them(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    few, many = tokens(20, 10, "uniform", 0), tokens(400, 100, "uniform", 0)
    assert attend_at_once(few, few, few, equal_masses(20), 1.0) is not None
    assert attend_at_once(many, many, many, equal_masses(400), 1.0) is None


def test_results_of_two_calls_share_nothing():
    x = tokens(40, 16, "uniform", 0)
    first = attend(x, x, beta=1.0)
    kept = first.mean.clone()
    attend(x, x, beta=9.0)
    assert torch.equal(first.mean, kept)
