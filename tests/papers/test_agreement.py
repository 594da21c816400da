"""Numbers beside what they should be."""

import numpy as np

from metastable.papers.agreement import agreement_figure
from metastable.papers.claim import Outcome


def test_groups_and_the_line_of_equals():
    curves = {
        "expected a": np.array([1.0, 2.0]),
        "measured a": np.array([1.1, 1.9]),
        "expected b": np.array([-3.0]),
        "measured b": np.array([-2.9]),
        "error b": np.array([0.2]),
    }
    figure = agreement_figure(Outcome(1.0, curves=curves), "title", "x", "y")
    a, b, equal = figure.series
    assert a.label == "a" and list(a.y) == [1.1, 1.9] and list(b.error) == [0.2]
    assert list(equal.x) == list(equal.y) == [-3.0, 2.0]
