import math

import numpy as np
import pytest
import torch

from metastable import sphere
from metastable.measure import Measure
from metastable.papers import Outcome
from metastable.papers.concentration.departures import TERMINAL_W2, departure_figure, median_width
from metastable.papers.concentration.families import competing, sheared
from metastable.papers.concentration.measuring import run
from metastable.theory import spectrum
from metastable.transport import wasserstein


def test_the_terminal_distance_is_that_of_the_two_laws():
    top = spectrum(sheared(0.5)).V.space[:, 0]
    concentrated = Measure(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    assert float(wasserstein(concentrated, Measure(torch.stack([top, -top])))) == pytest.approx(
        TERMINAL_W2, abs=1e-12
    )


def test_width_of_a_pair_of_clusters():
    points = sphere.from_angles(np.array([-0.1, 0.0, 0.1, math.pi - 0.1, math.pi + 0.1]))
    path = run(competing(), 50.0, points, [0.0, 0.01])
    assert median_width(path)[0] == pytest.approx(math.tan(0.1), abs=1e-12)


def test_an_estimate_has_the_shade_of_its_curve():
    t = np.arange(3.0)
    curves = {"beta": np.array([32.0, 48.0]), "predicted": np.array([1.0, 2.0])}
    for beta in (32, 48):
        curves |= {f"t {beta}": t, f"W2 {beta}": t}
    series = departure_figure(Outcome(1.0, curves=curves)).series
    assert [one.shade for one in series] == [0.0, 0.0, 1.0, 1.0]
    assert [one.label for one in series[2:]] == ["β = 48", "estimate, β = 48"]
