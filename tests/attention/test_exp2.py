"""2^t and log in compiled loops: to rounding over their whole range."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from metastable.attention.exp2 import LN_2, LOG2_E, NO_REASSOCIATION, REDUCTION, exp2, log, wide


@njit(fastmath=NO_REASSOCIATION)
def powers(t, out):
    for i in range(t.shape[0]):
        out[i] = exp2(t[i])


@njit(fastmath=REDUCTION)
def sum_of_powers(t):
    total = 0.0
    for i in range(t.shape[0]):
        total += exp2(t[i])
    return total


@njit(fastmath=NO_REASSOCIATION)
def logarithms(t, out):
    for i in range(t.shape[0]):
        out[i] = log(t[i])


@pytest.mark.parametrize(("dtype", "range_", "error"), [(np.float64, 1000, 4e-16), (np.float32, 120, 2.5e-7)])
def test_powers_of_two_to_rounding(dtype, range_, error):
    t = np.random.default_rng(0).uniform(-range_, range_, 20_000).astype(dtype)
    out = np.empty_like(t)
    powers(t, out)
    exact = np.exp2(t.astype(np.longdouble))
    assert float(np.abs(out / exact - 1).max()) <= error
    whole = np.arange(-range_, range_ + 1).astype(dtype)
    out = np.empty_like(whole)
    powers(whole, out)
    assert np.array_equal(out, np.exp2(whole))


def test_a_sum_that_may_be_reordered_keeps_the_rounding_inside_exp2():
    """Reassociation across the rounding constant would turn 2^t into nonsense."""
    t = np.linspace(-3.3, 2.9, 4001)
    assert sum_of_powers(t) == pytest.approx(np.exp2(t).sum(), rel=1e-14)


def test_logarithms_of_normal_numbers():
    t = np.exp(np.random.default_rng(1).uniform(-700, 700, 20_000))
    t = np.append(t, [1.0, np.nextafter(1.0, 2.0), np.nextafter(1.0, 0.0), 2.0, 0.5])
    out = np.empty_like(t)
    logarithms(t, out)
    exact = np.log(t.astype(np.longdouble))
    assert float((np.abs(out - exact) / (1 + np.abs(exact))).max()) <= 3e-16


def test_from_e_to_two_and_back():
    assert pytest.approx(1.0, rel=1e-15) == LOG2_E * LN_2


def test_private_interface_of_numba_still_takes_overloads_with_flags():
    """numba's `overload` must accept jit_options={"fastmath": a set}, or exp2 would be reassociated."""
    from numba.extending import overload

    def twice(x):
        raise NotImplementedError

    @overload(twice, jit_options={"fastmath": {"contract"}})
    def _twice(x):
        return lambda x: 2.0 * x

    assert njit(lambda x: twice(x))(1.5) == 3.0


def test_a_compiled_function_may_ask_for_wide_vectors() -> None:
    """`wide` adds an attribute to a function through llvmlite's set of them, which is a private interface."""

    @njit(error_model="numpy")
    def doubled(x):
        wide()
        for i in range(len(x)):
            x[i] = 2 * x[i]

    x = np.arange(5.0)
    doubled(x)
    assert x.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert any('"prefer-vector-width"="512"' in code for code in doubled.inspect_llvm().values())
