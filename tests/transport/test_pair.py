"""Two measures are compared only when they can be: same space, same total mass; empty tokens do not count."""

import numpy as np
import pytest

from metastable import sphere
from metastable.errors import InvalidInput
from metastable.measure import Measure
from metastable.transport import wasserstein
from metastable.transport.pair import equal_masses, make_pair


def test_measures_that_do_not_match_are_refused() -> None:
    with pytest.raises(InvalidInput, match="same dimension, got d = 2 and d = 3"):
        wasserstein(np.eye(2), np.eye(3))
    with pytest.raises(InvalidInput, match="same total mass"):
        wasserstein(Measure(np.eye(2), [1.0, 1.0]), Measure(np.eye(2)))
    with pytest.raises(InvalidInput, match="max_pairs"):
        wasserstein(sphere.uniform(30, 3, seed=1), sphere.uniform(30, 3, seed=2), max_pairs=100)
    with pytest.raises(InvalidInput, match="geodesic"):
        wasserstein(Measure(np.eye(2), sphere=False), Measure(np.eye(2), sphere=False), metric="geodesic")


def test_empty_tokens_are_left_out_and_masses_sum_to_one() -> None:
    pair = make_pair(Measure(np.eye(3), [1.0, 0.0, 3.0]), Measure(np.eye(3)[:2], [2.0, 2.0]))
    assert pair.x.tolist() == [[1, 0, 0], [0, 0, 1]] and pair.a.tolist() == [0.25, 0.75]
    back = pair.swapped()
    assert (back.x is pair.y, back.b is pair.a, back.pairs, back.d) == (True, True, 4, 3)
    assert equal_masses(pair.b) and not equal_masses(pair.a)
