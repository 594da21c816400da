"""A distance is a float with its provenance."""

import math
import pickle

import pytest

from metastable.transport import Distance, wasserstein


def test_distance_is_a_float_with_provenance() -> None:
    found = wasserstein([[1.0, 0.0]], [[-1.0, 0.0]], metric="geodesic")
    assert float(found) == pytest.approx(math.pi, abs=1e-15)
    assert (found.method, found.exact, found.error, found.metric, found.p) == ("atoms", True, 0.0, "geodesic", 2)
    assert repr(found) == "3.142 (exact, atoms, geodesic W2)"
    restored = pickle.loads(pickle.dumps(found))
    assert isinstance(restored, Distance) and restored == found and restored.method == "atoms"
