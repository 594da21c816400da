import math

import numpy as np
import pytest
import torch

from metastable import SelfAttention
from metastable.meanfield import distance_to_limit, evolve_density, reference_skew, solve
from metastable.meanfield.agreement import _accuracies
from metastable.meanfield.panel_run import LEAST_MASS
from metastable.meanfield.refine_circle import refine_circle
from metastable.papers.concentration.families import sheared


def test_estimate_covers_the_error():
    coarse, fine = (solve(sheared(0.5), 32.0, reference_skew(), 2.0, tol=tol) for tol in (1e-2, 1e-7))
    gap = abs(float(distance_to_limit(coarse).distance[-1] - distance_to_limit(fine).distance[-1]))
    assert gap <= float(distance_to_limit(coarse).error[-1]) + 1e-7


def test_refined_map_is_that_of_the_density_solver():
    flow, times = SelfAttention(sheared(0.5), 8.0), np.array([0.5, 1.0])
    refined = refine_circle(flow, reference_skew(), times, 1e-6, 8.0 * 1.2808, 8192)
    density = evolve_density(flow, reference_skew(), times)
    assert refined.converged and max(refined.errors) < 1e-6
    theta = torch.atan2(refined.start[:, 1], refined.start[:, 0]).numpy()
    for frame, i in zip(refined.frames, (0, 1), strict=True):
        image = density.carry(i, theta)
        gap = frame - torch.from_numpy(np.stack([np.cos(image), np.sin(image)], axis=1))
        assert math.sqrt(float(refined.mass @ gap.square().sum(1))) < 1e-6


@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-6, 1e-8])
def test_accuracies_grow_until_a_misplaced_mass_costs_less_than_tol(tol):
    masses, widths = zip(*_accuracies(tol), strict=True)
    assert 2 * math.sqrt(masses[-1]) < tol or masses[-1] == LEAST_MASS
    assert min(masses) >= LEAST_MASS
    assert widths[-1] == 4.0
