"""Orders of Heun: 1/2 for single paths, 1 for expectations."""

import pytest

from metastable.solve.heun import Heun
from noise_orders import strong_order, weak_order


@pytest.mark.parametrize("activation", ["constant", "linear", "relu"])
def test_strong_order(activation):
    assert strong_order(Heun.name, activation) == pytest.approx(Heun.strong_order, abs=0.1)


@pytest.mark.parametrize("activation", ["constant", "relu"])
def test_weak_order(activation):
    assert weak_order(Heun.name, activation) == pytest.approx(Heun.order, abs=0.1)
