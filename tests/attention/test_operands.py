"""The operands of a call: facts that hold, each found once."""

from __future__ import annotations

import gc
import math
import weakref
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch

from attention.attention_reference import tokens
from metastable.attention import Operands, operands
from metastable.attention.operands import TokensOfStep, contiguous, same_tensor
from metastable.errors import InvalidInput
from metastable.sphere import uniform


def of(x, **changes):
    given = {"queries": x, "keys": x, "values": x, "mass": torch.ones(len(x), dtype=x.dtype), "beta": 3.0}
    return Operands(**(given | changes))


def test_values_are_keys_only_as_the_same_memory():
    x = tokens(10, 3, "uniform", 0)
    assert of(x).values_are_keys
    assert of(x, values=x.view(10, 3)).values_are_keys
    assert not of(x, values=x.clone()).values_are_keys
    assert not of(x, values=x[:, :2]).values_are_keys
    assert not same_tensor(x, x.T.reshape(10, 3))


def test_lengths_and_what_rounding_does_to_scores():
    x = torch.tensor([[3.0, 4.0], [0.0, 1.0]], dtype=torch.float64)
    asked = of(x, queries=2 * x)
    assert asked.squared_queries == (4.0, 100.0) and asked.squared_keys == (1.0, 25.0)
    assert asked.sharpness == 30.0
    assert asked.pairs == 4
    assert asked.largest_score == 3.0 * 10.0 * 5.0
    scores = (6 + 2 / 2) * asked.largest_score
    assert asked.rounding(torch.float32) == pytest.approx(2.0**-23 * (8 + scores + 4 * np.log(2)), rel=1e-12)
    assert not asked.keys_on_sphere
    assert of(tokens(100, 3, "uniform", 1)).keys_on_sphere
    assert not of(tokens(100, 3, "uniform", 1) * (1 + 1e-12)).keys_on_sphere


def test_only_masses_that_move_digits_count():
    """log(max m / min m) up to 2 L + log n + 5; keys below are lost in any row, whatever their exponents lost."""
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    near, far, farther = (
        replace(of(x), mass=torch.tensor([1.0, m], dtype=x.dtype)) for m in (1e-3, 1e-100, 1e-200)
    )
    assert near.rounding(torch.float64) < far.rounding(torch.float64) == farther.rounding(torch.float64)


def test_operands_do_not_outlive_their_call():
    """What is all seen holds no reference to itself, which only a collection of garbage would free."""
    asked = of(tokens(20, 3, "uniform", 0))
    assert asked.seen is asked
    left = weakref.ref(asked)
    gc.disable()
    try:
        del asked
        assert left() is None
    finally:
        gc.enable()


def test_facts_are_found_once(monkeypatch):
    calls, measured = [], operands.squared_lengths
    monkeypatch.setattr(operands, "squared_lengths", lambda x: calls.append(len(x)) or measured(x))
    asked = of(tokens(20, 3, "uniform", 0), queries=tokens(7, 3, "uniform", 1))
    for _ in range(3):
        assert asked.keys_on_sphere
        assert math.isfinite(asked.rounding(torch.float64) + asked.sharpness)
    assert sorted(calls) == [7, 20]


def test_once_keeps_an_answer_per_question():
    asked, calls = of(tokens(5, 2, "uniform", 0)), []

    def count(given, times):
        calls.append(times)
        return times * len(given.queries)

    assert [asked.once(count, 2), asked.once(count, 3), asked.once(count, 2)] == [10, 15, 10]
    assert calls == [2, 3]
    assert of(asked.queries).once(count, 2) == 10 and calls == [2, 3, 2]


def test_a_fact_may_be_none():
    asked, calls = of(tokens(5, 2, "uniform", 0)), []
    for _ in range(2):
        assert asked.once(lambda given, seen=calls: seen.append(given), *()) is None

    def nothing(given):
        calls.append(given)

    calls.clear()
    assert asked.once(nothing) is None and asked.once(nothing) is None
    assert len(calls) == 1


def test_in_double_values_stay_the_keys():
    x = tokens(10, 3, "uniform", 0).float()
    double = of(x).double()
    assert double.queries.dtype == double.mass.dtype == torch.float64
    assert double.values is double.keys
    other = of(x, values=x.clone()).double()
    assert other.values.dtype == torch.float64 and not other.values_are_keys


def test_arrays_are_in_c_order_and_copied_only_when_they_must():
    x = tokens(6, 3, "uniform", 0)
    arrays = of(x).arrays
    assert arrays.queries.ctypes.data == x.data_ptr() and arrays.values is arrays.keys
    turned = contiguous(x.T)
    assert turned.flags.c_contiguous and np.array_equal(turned, x.numpy().T)


def test_some_queries_keep_keys_and_mass():
    asked = of(tokens(6, 3, "uniform", 0))
    some = asked.of_queries(torch.tensor([4, 1]))
    assert torch.equal(some.queries, asked.queries[[4, 1]])
    assert some.keys is asked.keys and some.mass is asked.mass and some.beta == asked.beta


def test_operands_are_frozen_and_refuse_another_device():
    asked = of(tokens(2, 2, "uniform", 0))
    asked.require_cpu("fused")
    with pytest.raises(FrozenInstanceError):
        asked.beta = 1.0
    empty = torch.empty(2, 2, device="meta")
    elsewhere = of(empty, mass=empty[0])
    with pytest.raises(InvalidInput, match='kernel="fused" runs on the CPU, got tensors on meta'):
        elsewhere.require_cpu("fused")


def test_what_is_known_of_the_masses():
    """Zero masses are left out, and their logarithms survive where a quotient underflows."""
    x = tokens(5, 3, "uniform", 0)
    asked = Operands(x, x, x, torch.tensor([1e300, 0.0, 1e-300, 2.0, 0.0], dtype=torch.float64), 2.0)
    assert asked.masses == (1e-300, 1e300, pytest.approx(1e300))
    assert asked.log_mass_ratio == pytest.approx(600 * np.log(10))
    np.testing.assert_allclose(asked.log_shares[[0, 2]], [0.0, -600 * np.log(10)], rtol=1e-14)
    assert asked.seen.mass.tolist() == [1e300, 1e-300, 2.0]
    assert asked.seen.values is asked.seen.keys and torch.equal(asked.seen.keys, x[[0, 2, 3]])
    assert asked.seen.seen is asked.seen
    other = replace(asked, values=2 * x).seen
    assert torch.equal(other.values, 2 * other.keys)


@pytest.mark.parametrize(
    "changes",
    [
        {"queries": None},
        {"keys": [[1.0, 0.0]]},
        {"values": torch.ones(2)},
        {"mass": torch.ones(3)},
        {"mass": torch.ones(2, 2)},
        {"queries": torch.ones(2, 5)},
        {"beta": "hot"},
        {"beta": -1.0},
        {"beta": torch.ones(2)},
        {"mask": 3},
        {"queries": torch.ones(2, 2, dtype=torch.float32)},
        {"mass": torch.ones(2, dtype=torch.float64, device="meta")},
        {"keys": torch.ones(2, 2, dtype=torch.int64)},
        {"values": torch.eye(2, dtype=torch.float64).to_sparse()},
    ],
)
def test_operands_that_make_no_sense_are_refused(changes):
    with pytest.raises(InvalidInput) as refusal:
        of(tokens(2, 2, "uniform", 0), **changes)
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize(
    "rows", [None, [0], torch.ones(2), torch.tensor([[0]]), torch.tensor([7]), torch.tensor([-1])]
)
def test_rows_that_are_none_are_refused(rows):
    asked = of(tokens(3, 2, "uniform", 0))
    with pytest.raises(InvalidInput, match="rows must be"):
        asked.of_queries(rows)
    with pytest.raises(InvalidInput, match="dtype must be"):
        asked.rounding(rows)
    with pytest.raises(InvalidInput, match="fact must be"):
        asked.once(3)


def test_operands_checked_before_are_the_same():
    x = tokens(4, 2, "uniform", 0)
    mass = torch.ones(4, dtype=torch.float64)
    made = Operands.checked_before(x, x, x, mass, 2.0)
    assert made.keys is x and made.mass is mass and made.beta == 2.0 and made.mask is None
    assert made.largest_score == of(x, beta=2.0).largest_score


def test_tokens_that_moved_know_where_they_were():
    x, B = tokens(10, 3, "uniform", 0), torch.eye(3, dtype=torch.float64) * 2.0
    mass = torch.full((10,), 0.1).double()
    here = Operands.known(x @ B, x, mass, 1.5, B)
    y = tokens(10, 3, "uniform", 1)
    there = here.moved(y @ B, y, mass)
    assert here.matrix is B and here.before is None and there.matrix is B and there.before is here
    assert there.values_are_keys and there.beta == 1.5 and there.keys is y
    assert of(x).matrix is None and there.of_queries(torch.arange(3)).before is None


def test_the_first_stage_of_a_step_is_what_the_others_have_moved_from():
    matrix = torch.eye(3, dtype=torch.float64)
    step, x = TokensOfStep(matrix), uniform(5, 3, seed=0)
    mass = torch.full((5,), 0.2, dtype=torch.float64)
    first = step.operands(x, x, mass)
    later = step.operands(x.flip(0), x.flip(0), mass)
    assert first.before is None and later.before is first
    assert first.matrix is matrix and later.matrix is matrix and later.keys[0].equal(x[4])
