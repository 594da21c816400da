"""Memory that is kept: the same for one use of one thread, and nobody else's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from metastable.attention.sphere.kept import MOST_KEPT, kept_array


def test_memory_is_kept_for_one_use_of_one_thread() -> None:
    one = kept_array("of a test", (3, 5))
    one[:] = 7.0
    again = kept_array("of a test", (2, 2), np.complex128)
    assert np.shares_memory(one, again) and again.dtype == np.complex128 and again.shape == (2, 2)
    assert not np.shares_memory(one, kept_array("of another test", (3, 5)))
    larger = kept_array("of a test", (40, 5))
    assert not np.shares_memory(one, larger) and np.shares_memory(larger, kept_array("of a test", (40, 5)))
    with ThreadPoolExecutor(1) as pool:
        assert not np.shares_memory(larger, pool.submit(kept_array, "of a test", (40, 5)).result())
    assert kept_array("of a test", (0, 4)).shape == (0, 4)


def test_much_memory_is_not_kept() -> None:
    much = (MOST_KEPT // 8 + 1,)
    assert not np.shares_memory(kept_array("of a test", much), kept_array("of a test", much))
