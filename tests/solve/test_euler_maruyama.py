"""Orders of EulerMaruyama: 1/2 for single paths, 1 for expectations."""

import pytest

from metastable.solve.euler_maruyama import EulerMaruyama
from noise_orders import strong_order, weak_order


@pytest.mark.parametrize("activation", ["constant", "linear", "relu"])
def test_strong_order(activation):
    assert strong_order(EulerMaruyama.name, activation) == pytest.approx(EulerMaruyama.strong_order, abs=0.1)


@pytest.mark.parametrize("activation", ["constant", "relu"])
def test_weak_order(activation):
    assert weak_order(EulerMaruyama.name, activation) == pytest.approx(EulerMaruyama.order, abs=0.1)
