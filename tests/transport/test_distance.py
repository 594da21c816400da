"""A distance is a float with its provenance."""

import math
import pickle

import pytest

from metastable.errors import InvalidInput
from metastable.transport import Bounds, Distance, bounds, wasserstein
from metastable.transport.distance import bracket


def test_distance_is_a_float_with_provenance() -> None:
    found = wasserstein([[1.0, 0.0]], [[-1.0, 0.0]], metric="geodesic")
    assert float(found) == pytest.approx(math.pi, abs=1e-15)
    assert (found.method, found.exact, found.error, found.metric, found.p) == ("atoms", True, 0.0, "geodesic", 2)
    assert repr(found) == "3.142 (exact, atoms, geodesic W2)"
    restored = pickle.loads(pickle.dumps(found))
    assert isinstance(restored, Distance) and restored == found and restored.method == "atoms"


def test_a_bracket_is_not_a_number() -> None:
    found = bounds([[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [-1.0, 0.0]])
    lower, upper = found
    assert isinstance(found, Bounds) and not found.exact and lower.error == upper - lower
    assert repr(found).startswith("1 <= chordal W2 <= 1.414 (")
    with pytest.raises(InvalidInput, match=r"take \.lower or \.upper"):
        float(found)
    assert isinstance(pickle.loads(pickle.dumps(found)), Bounds)
    crossed = bracket(1.0, 1.0 - 1e-16, ("a", "b"))
    assert crossed.lower <= crossed.upper


def test_other_units() -> None:
    found = Distance(0.5, method="sliced", exact=False, error=0.1).times(4)
    assert (float(found), found.error, found.exact) == (2.0, 0.4, False)
    with pytest.raises(InvalidInput, match="must fit into a float"):
        Distance(4.0, method="line", exact=True).times(1e308)


@pytest.mark.parametrize(
    "wrong", [{"value": None}, {"value": -1.0}, {"exact": 1}, {"method": 3}, {"p": [2]}, {"error": -1}]
)
def test_a_distance_of_nonsense_is_refused(wrong: dict) -> None:
    with pytest.raises(InvalidInput):
        Distance(**({"value": 1.0, "method": "line", "exact": True} | wrong))
