"""Groups of panels: the field of a group is that of its nodes."""

from functools import partial

import numpy as np

from metastable import SelfAttention
from metastable.meanfield import reference_skew
from metastable.meanfield.circle import angular_velocity, circle_law
from metastable.meanfield.groups import Groups
from metastable.meanfield.lagrangian import flow_map
from metastable.meanfield.panel_run import Accuracy
from metastable.papers.concentration.families import sheared

LAW = circle_law(reference_skew())


def test_groups_have_the_field_of_their_nodes():
    """Late enough for clusters: most nodes stand in groups, and none of the sixteen digits is lost."""
    flow, t, kappa = SelfAttention(sheared(0.5), 8.0), 4.0, 8.0 * 1.2808
    frame = flow_map(flow, LAW, np.array([t]), kappa, Accuracy.within(1e-8, 6.0), 8192).frames[0]
    mass = frame.panels.mass(LAW)
    groups = Groups(partial(angular_velocity, flow), frame.theta, mass, kappa)
    assert groups.inside.mean() > 0.5
    exact = angular_velocity(flow, t, frame.theta.ravel(), mass.ravel()).reshape(mass.shape)
    assert np.abs(groups.velocity(t, frame.theta) - exact).max() < 1e-14
