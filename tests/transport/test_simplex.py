"""The network simplex is proven by its potentials: masses over decades, costs of any size, a plan that is wrong."""

import numpy as np
import pytest

from metastable.errors import SolveError
from metastable.transport import simplex
from metastable.transport.simplex import certified, dual_value, network_simplex


@pytest.mark.parametrize("decades", [0, 9, 30, 300])
@pytest.mark.parametrize("size", [1e-20, 1.0, 1e20])
def test_primal_and_dual_meet(decades: float, size: float) -> None:
    rng = np.random.default_rng(int(decades))
    cost = size * rng.random((30, 20))
    a, b = (10.0 ** (-decades * rng.random(n)) for n in cost.shape)
    a, b = a / a.sum(), b / b.sum()
    value, weights = network_simplex(cost, a, b)
    assert value == pytest.approx(dual_value(cost, a, b, weights), abs=1e-13 * size)


def test_any_weights_bound_from_below() -> None:
    rng = np.random.default_rng(1)
    cost, a, b = rng.random((9, 7)), rng.dirichlet(np.ones(9)), rng.dirichlet(np.ones(7))
    value, _ = network_simplex(cost, a, b)
    assert all(dual_value(cost, a, b, rng.standard_normal(7)) <= value for _ in range(50))
    assert certified(value, value + 1e-12, cost) and not certified(value, value - 1e-9, cost)


def test_a_value_that_is_not_proven_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simplex, "dual_value", lambda *_: -1.0)
    with pytest.raises(SolveError, match="not certified"):
        network_simplex(np.eye(2), np.full(2, 0.5), np.full(2, 0.5))
