"""One start graded on its curves: who comes first is a matter of time, not of height."""

from __future__ import annotations

import pytest
import torch

from metastable.audit.loop_run import earlier, graded_run, log_times, median_passes
from metastable.audit.looping import Iterated


def graded(terminal, early, settled=True, rematched=None, points=None):
    columns = [terminal, early, rematched or [0.0] * len(early), [0.1] * len(early)]
    curve = torch.tensor(columns, dtype=torch.float64).T
    points = torch.eye(3, dtype=torch.float64)[:2] if points is None else points
    mass = torch.full((len(points),), 1 / len(points), dtype=torch.float64)
    run = Iterated(points, mass, torch.arange(len(points)), list(curve), settled)
    return graded_run("text", run, curve, 3)


def test_order_is_not_the_maximum():
    """M0 reaches 97% in the end, and yet sum A held a quarter of the energy first."""
    late = graded([0.02, 0.1, 0.3, 0.2, 0.01], [0.02, 0.05, 0.1, 0.6, 0.97])
    assert late.first == "sum A" and late.largest_products == pytest.approx(0.97) and late.end == "M0"
    assert (late.reached_values, late.reached_products, late.values_ahead) == (2, 3, 2)
    never = graded([0.02, 0.3, 0.5, 0.8, 1.0], [0.02, 0.2, 0.3, 0.2, 0.1])
    assert never.first == "sum A" and never.end == "sum A"  # ahead at every pass, though M0 has 30% at its largest
    first = graded([0.03, 0.05, 0.2, 0.6, 0.99], [0.02, 0.3, 0.6, 0.3, 0.01])
    assert first.first == "M0" and first.values_ahead == 1 and first.end == "sum A"
    assert graded([0.1] * 3, [0.2] * 3).first is None


def test_a_run_that_was_cut_off_has_no_end():
    """95.2% after the last pass is no verdict while the tokens still move."""
    assert graded([0.5, 0.9, 0.952], [0.0] * 3, settled=False).end == "undecided"
    assert graded([0.5, 0.9, 0.952], [0.0] * 3).end == "sum A"
    assert graded([0.5, 0.5, 0.5], [0.0] * 3).end == "elsewhere"


def test_antipodal_clusters():
    x = torch.eye(3, dtype=torch.float64)
    assert graded([0.0] * 2, [1.0] * 2, points=torch.stack((x[0], -x[0], x[0]))).antipodal
    assert not graded([0.0] * 2, [1.0] * 2, points=torch.stack((x[0], x[1]))).antipodal


def test_the_control_has_a_time_of_its_own():
    run = graded([0.0, 0.0, 0.3], [0.0, 0.0, 0.0], rematched=[0.0, 0.4, 0.0])
    assert run.reached_rematched == 1 and earlier(run.reached_rematched, run.reached_values)
    assert not earlier(None, 3) and earlier(3, None) and not earlier(2, 2)


def test_passes_in_which_sum_a_was_ahead():
    first = graded([0.03, 0.05, 0.2], [0.02, 0.3, 0.6])
    assert median_passes([first, graded([0.3, 0.5], [0.0, 0.0])]) == 1
    assert median_passes([]) is None


def test_times_grow_and_hold_both_ends():
    times = log_times(400, 32)
    assert times[0] == 0 and times[-1] == 399 and times == sorted(set(times)) and len(times) <= 34
    assert times[:4] == [0, 1, 2, 3] or times[1] == 1
    assert log_times(1) == [0]
