import math

import numpy as np
import pytest
import torch

from metastable import sphere
from metastable.measure import Measure
from metastable.papers import Setting
from metastable.papers.concentration.families import competing, sheared
from metastable.papers.concentration.measuring import run
from metastable.papers.concentration.terminal import (
    TERMINAL_W2,
    cluster_exits,
    median_width,
    rotation_experiment,
)
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


def test_clusters_leave_where_their_mean_passes_one_half():
    path = run(competing(), 20.0, sphere.uniform(60, 2, seed=1), np.linspace(0, 20, 81), rtol=1e-6)
    exits = cluster_exits(path, np.linspace(0, 20, 81))
    assert all(1.0 < t < 20.0 for t in exits)


def test_a_cluster_turns_with_the_frequency_of_the_pair():
    assert rotation_experiment(Setting(quick=True)).measured == pytest.approx(1.0, abs=0.02)
