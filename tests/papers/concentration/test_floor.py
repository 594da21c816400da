import math

import numpy as np
import pytest
import torch

from metastable.papers import Outcome, Setting
from metastable.papers.concentration.floor import (
    _median_ratio,
    _theorem,
    floor_mass_experiment,
    symmetric_floor_figure,
)


def test_the_theorem_s_power_of_beta():
    assert _theorem(np.array([math.e - 1])) == pytest.approx(1 / math.sqrt(math.e - 1))


def test_the_median_is_that_of_the_half_of_positive_x1():
    angle = torch.tensor([-0.2, 0.1, 0.4, math.pi - 0.3], dtype=torch.float64)
    points = torch.stack([angle.cos(), angle.sin()], dim=1)
    assert _median_ratio(points, torch.full((4,), 0.25, dtype=torch.float64)) == pytest.approx(math.tan(0.1))


def test_mass_that_changes_sides_is_the_predicted_one():
    outcome = floor_mass_experiment(Setting(quick=True))
    assert outcome.measured == pytest.approx(1.0, abs=0.05)
    assert [row["predicted"] for row in outcome.table] == [1 / (2 * math.pi)] * 2


def test_offsets_are_scaled_by_beta():
    curves = {"t": np.zeros(2), "beta": np.array([2.0, 4.0]), "offset": np.array([[1.0, 1.0], [0.5, 0.5]])}
    series = symmetric_floor_figure(Outcome(-1.0, curves=curves)).series
    assert [one.y.tolist() for one in series] == [[2.0, 2.0], [2.0, 2.0]]
