"""The two ways to the mean-field curve agree."""

import numpy as np

from metastable import meanfield
from metastable.meanfield import reference_skew
from metastable.papers.concentration.families import graded_curve, mean_field, sheared


def test_graded_nodes_reproduce_the_refined_curve():
    times = np.array([0.0, 1.0, 2.0])
    refined = meanfield.distance_to_limit(mean_field(sheared(0.5), 64.0, reference_skew(), times, 1e-5))
    graded = graded_curve(sheared(0.5), 64.0, reference_skew(), times, n=800)
    assert np.abs(graded - refined.distance.numpy()).max() < 1e-5
