"""The looped layer: k of n starts, with intervals and controls."""

from __future__ import annotations

import pytest
import torch

from metastable.audit.heads import audit_weights
from metastable.audit.loop import _whole, audit_loops
from metastable.audit.starts import STARTS, text_starts


@pytest.fixture(scope="module")
def loops(tiny):
    encoder = tiny("bert")
    texts = text_starts(encoder, [[5 + (i * k) % 50 for i in range(64)] for k in range(1, 7)])
    return audit_loops(encoder, audit_weights(encoder), texts, steps=30)


def test_rates_are_counts_of_runs(loops):
    for loop in loops:
        assert loop.starts == len(loop.runs) == STARTS
        settled = [run for run in loop.runs if run.end != "undecided"]
        assert loop.undecided == STARTS - len(settled)
        assert (loop.ends_values.k, loop.ends_values.n) == (
            sum(run.end == "sum A" for run in settled),
            len(settled),
        )
        assert loop.first_products.k == sum(run.first == "M0" for run in loop.runs)
        assert loop.early_holds in (None, loop.early == loop.forecast_early)
        assert sum(int(part.split()[0]) for part in loop.outcome.split(", ")) == STARTS


def test_every_forecast_stands_beside_its_control(loops):
    for loop in loops:
        assert loop.ends_other.n == loop.ends_values.n and loop.first_rematched.n == STARTS
        assert all(0 <= run.end_other <= 1 + 1e-12 for run in loop.runs)


def test_curves_and_trajectories_belong_to_the_runs(loops):
    for loop in loops:
        assert loop.curve_steps[-1] == max(run.passes for run in loop.runs)
        low, middle, high = (torch.tensor(row) for row in loop.curve_terminal)
        assert bool((low <= middle).all()) and bool((middle <= high).all())
        assert len(low) == len(loop.curve_steps) == len(loop.curve_early[0])
        drawn = loop.runs[loop.drawn]
        assert drawn.kind == "text" and drawn.tokens == 64
        assert loop.trajectory_steps[0] == 0 and len(loop.trajectories) == 24


def test_no_verdict_rests_on_undecided_starts():
    """A verdict stands only if it does not matter how the undecided starts would have ended."""
    assert _whole(20, 0, 24) is True and _whole(2, 0, 24) is False
    assert _whole(18, 6, 24) is True and _whole(14, 10, 24) is None
    assert _whole(12, 12, 24) is None and _whole(0, 24, 24) is None
    assert _whole(0, 3, 24) is False


def test_a_short_run_decides_nothing(tiny):
    encoder = tiny("bert")
    for loop in audit_loops(encoder, audit_weights(encoder), steps=1):
        assert loop.undecided > 0 and loop.terminal_holds is not True


@pytest.mark.slow
def test_marks_of_the_looped_layers(minilm):
    """all-MiniLM-L6-v2, random starts: five layers end in sum A, long starts of layer 1 in two clusters in M0."""
    loops = audit_loops(minilm, audit_weights(minilm))
    for l in (0, 2, 3, 4, 5):
        assert loops[l].terminal_holds and loops[l].ends_values.beats(loops[l].ends_other)
    long = [run for run in loops[1].runs if run.tokens == 64]
    assert sum(run.end == "M0" and run.antipodal for run in long) >= len(long) - 2
    assert loops[1].terminal_holds is not True
    assert [loop.forecast_early for loop in loops] == [False, True, True, False, False, False]
    assert all(loops[l].early is False for l in (0, 3, 4, 5))
