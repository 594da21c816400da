"""The front door: closed forms, every exact solver against every other, and sentences for bad input."""

import math
import pickle

import numpy as np
import pytest

from metastable import sphere
from metastable.errors import InvalidInput
from metastable.measure import Measure
from metastable.transport import Distance, wasserstein


def test_uniform_circle_against_two_poles() -> None:
    """R6: chordal sqrt(2 - 4/pi), geodesic pi/sqrt(12)."""
    rho = Measure(sphere.equispaced(100_000))
    poles = [[1.0, 0.0], [-1.0, 0.0]]
    assert wasserstein(rho, poles) == pytest.approx(math.sqrt(2 - 4 / math.pi), abs=1e-7)
    assert wasserstein(rho, poles, metric="geodesic") == pytest.approx(math.pi / math.sqrt(12), abs=1e-7)


def test_distance_is_a_float_with_provenance() -> None:
    found = wasserstein([[1.0, 0.0]], [[-1.0, 0.0]], metric="geodesic")
    assert float(found) == pytest.approx(math.pi, abs=1e-15)
    assert (found.method, found.exact, found.error, found.metric, found.p) == ("atoms", True, 0.0, "geodesic", 2)
    assert repr(found) == "3.142 (exact, atoms, geodesic W2)"
    restored = pickle.loads(pickle.dumps(found))
    assert isinstance(restored, Distance) and restored == found and restored.method == "atoms"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"metric": "euclid"}, "metric must be one of chordal, geodesic"),
        ({"method": "magic"}, "method must be one of auto, atoms"),
        ({"p": 0.5}, "p must be a finite number >= 1"),
    ],
)
def test_unknown_names_are_refused(arguments: dict, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        wasserstein([[1.0, 0.0]], [[0.0, 1.0]], **arguments)


def test_measures_that_do_not_match_are_refused() -> None:
    with pytest.raises(InvalidInput, match="same dimension, got d = 2 and d = 3"):
        wasserstein(np.eye(2), np.eye(3))
    with pytest.raises(InvalidInput, match="same total mass"):
        wasserstein(Measure(np.eye(2), [1.0, 1.0]), Measure(np.eye(2)))
    with pytest.raises(InvalidInput, match="max_pairs"):
        wasserstein(sphere.uniform(30, 3, seed=1), sphere.uniform(30, 3, seed=2), max_pairs=100)
    with pytest.raises(InvalidInput, match="geodesic"):
        wasserstein(Measure(np.eye(2), sphere=False), Measure(np.eye(2), sphere=False), metric="geodesic")
