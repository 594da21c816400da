import math

import numpy as np
import pytest

from metastable import SelfAttention
from metastable.errors import SolveError
from metastable.meanfield import reference_skew
from metastable.meanfield.circle import circle_law
from metastable.meanfield.lagrangian import flow_map
from metastable.meanfield.panel_run import Accuracy
from metastable.papers.concentration.families import plain, sheared
from weight_families import diagonal

LAW = circle_law(reference_skew())


def test_maps_at_beta_zero_and_V_one_are_moebius():
    """x' = P_x m(t), m the mean: cross-ratios of four points of the circle do not change."""
    run = flow_map(
        SelfAttention(diagonal(1, 1), 0.0), LAW, np.array([0.0, 1.5]), 1e-9, Accuracy.within(1e-12, 4.0), 8192
    )

    first, last = run.frames
    assert np.array_equal(first.theta, first.panels.start(LAW))
    fine = first.panels.united(last.panels)
    start, end = (frame.panels.read(frame.theta, fine).ravel()[[0, 40, 90, 150]] for frame in run.frames)
    ratios = []
    for theta in (start, end):
        a, b, c, d = np.exp(1j * theta)
        ratios.append((a - c) * (b - d) / ((a - d) * (b - c)))
    assert abs(ratios[0] - ratios[1]) < 1e-9
    assert np.abs(start - end).max() > 0.1


def test_saved_times_do_not_change_the_map():
    flow, kappa, accuracy = SelfAttention(sheared(0.5), 8.0), 8.0 * 1.2808, Accuracy.within(1e-12, 4.0)
    often, once = (flow_map(flow, LAW, np.array(t), kappa, accuracy, 8192) for t in ([0.2, 0.5, 1.0], [1.0]))
    a, b = often.frames[-1], once.frames[-1]
    panels = a.panels.united(b.panels)
    gap = a.panels.read(a.theta, panels) - b.panels.read(b.theta, panels)
    assert math.sqrt(float((panels.mass(LAW) * gap**2).sum())) < 1e-9
    assert len(often.frames) == 3


def test_too_many_steps_and_too_few_nodes_are_told():
    flow, accuracy = SelfAttention(plain(), 16.0), Accuracy.within(1e-10, 5.0)
    with pytest.raises(SolveError, match=r"more than 3 steps: t = .* of 2"):
        flow_map(flow, LAW, np.array([2.0]), 32.0, accuracy, 8192, max_steps=3)
    assert flow_map(flow, LAW, np.array([2.0]), 32.0, accuracy, 256).unresolved > 0
