import math

import numpy as np
import pytest
import torch

from metastable import sphere
from metastable.papers import Outcome, Setting
from metastable.papers.concentration.sphere_floor import Case, cases, crossed_mass, floor_figure, next_order


def test_the_floor_of_the_formula():
    assert Case(24.0).floor == pytest.approx(2 * math.sqrt(1 / 96))
    assert Case(24.0, rest=0.0).floor == pytest.approx(2 * math.sqrt(0.5 / 96))


@pytest.mark.parametrize("setting", [Setting(), Setting(quick=True), Setting(small=True)])
def test_parameters_of_the_formula_take_several_values(setting):
    chosen = cases(setting)
    assert len({case.tilt for case in chosen}) >= 2 and len({(case.top, case.rest) for case in chosen}) >= 2
    assert next_order(setting) <= 2 / 24


def test_the_separatrix_lies_between_two_rows():
    # Everything above height -0.03 goes up: tan of the latitude is stretched about that of -0.03.
    heights = torch.tensor([-0.2, -0.05, -0.01, 0.1], dtype=torch.float64)
    tangent = heights / (1 - heights**2).sqrt() + 0.03 / math.sqrt(1 - 0.03**2)
    end = 50 * tangent / (1 + (50 * tangent) ** 2).sqrt()
    rows = [torch.stack([h, (1 - h**2).sqrt(), h * 0]) for h in (heights, end)]
    start, stop = (torch.cat([sphere.normalize(x.T)] * 2) for x in rows)
    counted, exact = crossed_mass(Case(24.0, tilt=0.5), start, stop, torch.full((8,), 0.125, dtype=torch.float64))
    assert counted == pytest.approx(0.25)
    assert exact == pytest.approx(0.5 * (0.03 - 0.5 * 0.03**2 / 2), rel=1e-6)


def test_every_curve_on_the_sphere_stands_beside_its_floor_in_the_same_shade():
    t = np.arange(3.0)
    curves = {"cases": np.array([[4.0, 0.5, 2.0, 1.0], [16.0, 0.5, 2.0, 1.0]])}
    for i in range(2):
        curves |= {f"t {i}": t, f"W2 {i}": t, f"floor {i}": np.array([0.1])}
    series = floor_figure(Outcome(1.0, curves=curves)).series
    assert [one.label for one in series[:2]] == [
        "β = 4, a = 0.5, λ = 2, 1",
        "predicted floor, β = 4, a = 0.5, λ = 2, 1",
    ]
    assert [one.shade for one in series] == [0.0, 0.0, 1.0, 1.0]
    assert np.array_equal(series[1].y, np.full(3, 0.1))
