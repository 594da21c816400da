import numpy as np
import pytest

from metastable.solve.adaptive import Adaptive
from metastable.solve.dop853 import Dop853
from metastable.solve.tableau import Tableau


@pytest.mark.parametrize("method", [Adaptive(), Dop853()])
def test_the_arrays_are_those_of_the_pair(method) -> None:
    pair = Tableau.of(method)
    assert np.allclose(pair.table.sum(1), pair.nodes, atol=1e-13)
    assert np.allclose(pair.table[pair.end, : pair.end], method.weights.numpy())
    assert np.allclose(pair.errors.sum(1), 0.0, atol=1e-13) and (pair.damping > 0) == isinstance(method, Dop853)
    start, end = pair.between(np.array([0.0, 1.0]))
    assert np.allclose(start, 0.0) and np.allclose(end, pair.table[pair.end], rtol=0, atol=1e-13)
