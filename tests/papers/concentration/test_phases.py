import math

import numpy as np
import pytest
import torch

from metastable import sphere
from metastable.drawing import Portrait
from metastable.measure import Measure
from metastable.papers import Outcome
from metastable.papers.concentration.families import competing, sheared
from metastable.papers.concentration.phases import (
    ENTERED,
    NEAR,
    distance_to_space,
    entered,
    portrait_figure,
    rivals_of,
    worst,
)
from metastable.theory import distance_to_limit
from metastable.transport import wasserstein


def test_the_distance_to_a_space_is_that_to_the_nearest_law_on_it():
    x = sphere.uniform(50, 2, seed=1)
    space = torch.tensor([[0.6], [0.8]], dtype=torch.float64)
    nearest = torch.sign(x @ space) * space.T
    found = distance_to_space(x[None], Measure(x).mass, space)
    assert float(found[0]) == pytest.approx(float(wasserstein(x, nearest)), abs=1e-7)


def test_the_phase_is_entered_when_zero_temperature_says_so():
    rho0 = Measure(sphere.equispaced(400))
    t = entered(sheared(0.5), rho0)
    zero = np.asarray(distance_to_limit(sheared(0.5), rho0, np.array([0.0, t])))
    assert zero[1] / zero[0] == pytest.approx(ENTERED, abs=1e-3)


def test_the_worst_of_window_and_end_decides():
    times, near = np.arange(5.0), np.array([1.0, 0.1, 0.15, 0.9, 0.9])
    assert worst(times, near, np.array([1.0, 0.05]), (1.0, 2.0)) == 0.15
    assert worst(times, near, np.array([1.0, 0.3]), (1.0, 2.0)) == 0.3


@pytest.mark.parametrize(
    ("w", "x"), [(sheared(0.5), sphere.equispaced(200)), (competing(3), sphere.fibonacci(300))]
)
def test_laws_without_one_of_the_phases_are_far_from_it(w, x):
    found = rivals_of(w, Measure(x), np.linspace(0, 12, 49), (4.5, 6.0))
    assert all(value > 2 * NEAR for value in found.values())


def test_the_portrait_needs_only_what_is_stored():
    stored = {"t": np.zeros(1), "points": np.zeros((1, 4, 3), dtype=np.float32), "mass": np.full(4, 0.25)}
    figure = portrait_figure(Outcome(0.0, curves=stored))
    assert isinstance(figure, Portrait) and figure.mass.tolist() == [0.25] * 4
    assert [axis.phase for axis in figure.axes] == [1, 2] and len(figure.spectra.parts) == 2


def test_the_stated_duration_for_tokens_ends_where_the_offset_is_small():
    from metastable.papers.concentration.phases import LEFT

    assert 0.5 * math.exp(-LEFT) == pytest.approx(1 / 18)
