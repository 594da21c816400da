"""Products inside compiled code are numpy's, of either library."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from numba import carray, njit

from metastable.attention.direct import matrix_product
from metastable.attention.direct.matrix_product import (
    MOST_KEPT,
    kept_place,
    kept_room,
    multiply,
    multiply_part,
    product_address,
    room,
)
from metastable.attention.direct.wide_product import pointer


@njit
def product(address, a, b, turned, out):
    """A B, or A B^T, into the first columns of `out`."""
    m, k = a.shape
    n = b.shape[0] if turned else b.shape[1]
    multiply(address, turned, m, n, k, a.ctypes.data, b.ctypes.data, out.ctypes.data, out.shape[1])


@njit
def product_of_part(address, a, first, last, b, added, out):
    """A B over the columns of A from first to last, in the place of `out` or added to it."""
    some, others, n = a[:, first:], b[first:], b.shape[1]
    multiply_part(
        address, added, len(a), n, last - first, some.ctypes.data, a.shape[1], others.ctypes.data, out.ctypes.data
    )


@pytest.fixture(params=[True, False], ids=["torch", "SciPy"])
def address(request, monkeypatch):
    """Of torch's library where that is MKL, and of SciPy's."""
    if not request.param:
        monkeypatch.setattr(matrix_product, "blas_can_be_held", lambda: False)
    product_address.cache_clear()
    yield product_address()
    product_address.cache_clear()


@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 5, 3), (70, 33, 129)])
def test_a_product_and_one_with_a_transpose(address, shape):
    rng, (m, k, n) = np.random.default_rng(0), shape
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    out = np.full((m, n + 2), 7.0)
    product(address, a, b, False, out)
    np.testing.assert_allclose(out[:, :n], a @ b, rtol=0, atol=1e-13)
    assert (out[:, n:] == 7.0).all()
    product(address, a, np.ascontiguousarray(b.T), True, out)
    np.testing.assert_allclose(out[:, :n], a @ b, rtol=0, atol=1e-13)


def test_a_product_over_some_columns_is_added_to_others(address):
    rng = np.random.default_rng(0)
    a, b, out = rng.standard_normal((7, 40)), rng.standard_normal((40, 5)), np.full((7, 5), 9.0)
    product_of_part(address, a, 3, 11, b, False, out)
    np.testing.assert_allclose(out, a[:, 3:11] @ b[3:11], rtol=0, atol=1e-13)
    product_of_part(address, a, 20, 40, b, True, out)
    np.testing.assert_allclose(out, a[:, 3:11] @ b[3:11] + a[:, 20:] @ b[20:], rtol=0, atol=1e-13)


@pytest.mark.parametrize("shape", [(3,), (5, 7), (128, 200), (800, 700)])
def test_memory_for_products_begins_at_a_line_of_the_cache(shape):
    made = room(*shape)
    assert made.shape == shape and made.dtype == np.float64 and made.ctypes.data % 64 == 0


def test_a_thread_keeps_memory_that_is_not_much():
    first, other = kept_room(100), []
    assert np.shares_memory(first, kept_room(50)) and len(kept_room(50)) == 50
    assert kept_room(3000).ctypes.data % 64 == 0 and len(kept_room(3000)) == 3000
    assert not np.shares_memory(kept_room(MOST_KEPT + 1), kept_room(MOST_KEPT + 1))
    thread = threading.Thread(target=lambda: other.append(kept_room(100)))
    thread.start()
    thread.join()
    assert not np.shares_memory(kept_room(100), other[0])
    for size in (100, MOST_KEPT + 1):
        memory, address = kept_place(size)
        assert len(memory) >= size and memory.ctypes.data == address


def test_compiled_code_reads_numbers_by_their_address():
    @njit
    def second_row(address, rows, columns):
        return carray(pointer(address), (rows, columns))[1].sum()

    numbers = np.arange(12.0).reshape(3, 4)
    assert second_row(numbers.ctypes.data, 3, 4) == numbers[1].sum()
