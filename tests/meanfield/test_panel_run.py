"""Runs on panels by themselves: a field that is known, torn at zero."""

import numpy as np

from metastable.meanfield.panel_run import Accuracy, PanelRun
from metastable.meanfield.panels import WEIGHT, XI, Panels


class Saddle(PanelRun):
    """x' = x (1 - x^2) on [-1, 1]: x/sqrt(1 - x^2) grows like e^t, and the tear is at 1/3 of a cell, on no edge."""

    def __init__(self, accuracy):
        panels = Panels(np.array([0]), np.zeros(1), np.zeros(1, dtype=np.int64))
        super().__init__(accuracy, 1.0, 10**5, panels, self.labels(panels))

    def labels(self, panels):
        return -1 / 3 + panels.left[:, None] + np.ldexp(0.5, -panels.level)[:, None] * (XI + 1)

    def masses(self, panels):
        return np.ldexp(0.5, -panels.level)[:, None] * WEIGHT

    def velocity(self, t, theta):
        return theta * (1 - theta**2)

    def extent(self, theta):
        return np.abs(theta[:, -1] - theta[:, 0])


def test_the_map_is_exact_and_halved_where_it_is_torn():
    run = Saddle(Accuracy.within(1e-9, 1.0))
    frame = run.through(np.array([12.0]), 1000).frames[0]
    label = run.labels(frame.panels)
    grown = label / np.sqrt(1 - label**2) * np.exp(12.0)
    misplaced = np.abs(frame.theta - grown / np.sqrt(1 + grown**2))
    mass = run.masses(frame.panels)
    assert float((mass * misplaced).sum()) < 1e-9
    assert frame.panels.level.max() > 15, "panels close in on the tear"
    assert (np.diff(label.ravel()) > 0).all()


def test_panels_that_are_pressed_together_are_joined():
    class Sink(Saddle):
        def velocity(self, t, theta):
            return -theta

    run = Sink(Accuracy.within(1e-9, 0.1))
    frames = run.through(np.array([0.1, 6.0]), 1000).frames
    assert len(frames[0].panels) > 8 and len(frames[1].panels) == 1


def test_what_is_pressed_together_is_weighed_by_its_mass():
    """Far fewer panels on the way into the sinks at +-1, and no more mass on the wrong side of the tear."""

    class Lenient(Saddle):
        reach = 1.0

    runs = Saddle(Accuracy.within(1e-9, 1.0)), Lenient(Accuracy.within(1e-9, 1.0))
    frames = [run.through(np.array([12.0]), 1000).frames[0] for run in runs]
    assert len(frames[1].panels) < 0.7 * len(frames[0].panels)
    for run, frame in zip(runs, frames, strict=True):
        label = run.labels(frame.panels)
        grown = label / np.sqrt(1 - label**2) * np.exp(12.0)
        misplaced = np.abs(frame.theta - grown / np.sqrt(1 + grown**2))
        assert float((run.masses(frame.panels) * misplaced).sum()) < 1e-9
        assert run.pressed.any() and not run.pressed.all()


def test_a_step_into_nowhere_is_repeated():
    """A first step of 5 leaves the interval on which the field is a number: shorter ones do not."""

    class Edge(Saddle):
        def velocity(self, t, theta):
            return np.where(np.abs(theta) < 1.5, theta * (1 - theta**2), np.nan)

    run = Edge(Accuracy.within(1e-6, 4.0))
    run.h = 5.0
    frame = run.through(np.array([6.0]), 1000).frames[0]
    assert np.isfinite(frame.theta).all() and float(np.abs(frame.theta).max()) < 1.01
