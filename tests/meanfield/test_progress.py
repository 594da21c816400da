import numpy as np
import pytest
import torch

from metastable import Measure, sphere
from metastable.errors import InvalidInput
from metastable.meanfield import Skewed, Uniform, reference_skew, solve
from metastable.papers.concentration.families import plain
from weight_families import diagonal

ROUND = diagonal(2.0, 1.0, 0.5)
CASES = {
    "circle": (plain(), reference_skew(), 1.0),
    "tokens": (plain(), Measure(sphere.uniform(20, 2, seed=0)), 1.0),
    "sphere": (ROUND, Uniform(3), 0.3),
    "bundle": (ROUND, Skewed([1.0, 0.5, 0.2], 0.3), 2.0),
}


@pytest.mark.parametrize("case", CASES)
def test_every_run_is_told_from_its_start_to_its_end(case):
    """Times grow within a run and its steps are counted; at least two runs, which agree, reach the end."""
    w, law, t = CASES[case]
    seen = []
    path = solve(w, 2.0, law, t, tol=1e-2, progress=lambda *at: seen.append(at))
    starts = [i for i in range(len(seen)) if i == 0 or seen[i][0] <= seen[i - 1][0]]
    runs = [np.array(seen[i:j]) for i, j in zip(starts, [*starts[1:], len(seen)], strict=True)]
    assert path.converged and len(runs) >= 2
    for run in runs:
        assert (np.diff(run[:, 0]) > 0).all() and (np.diff(run[:, 1]) >= 1).all() and run[-1, 0] == t
    silent = solve(w, 2.0, law, t, tol=1e-2)
    assert torch.equal(path.points, silent.points)


def test_a_bar_is_drawn_and_taken_away(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    solve(plain(), 2.0, reference_skew(), 1.0, tol=1e-2, progress=True)
    assert "mean field, run 1" in capsys.readouterr().err
    solve(plain(), 2.0, reference_skew(), 1.0, tol=1e-2)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("wrong", ["yes", 2.5, print.__class__, lambda t: None])
def test_nothing_else_is_told(wrong):
    with pytest.raises(InvalidInput, match=r"progress must be True, False or a function of \(t, steps\), got"):
        solve(plain(), 2.0, Uniform(2), 1.0, progress=wrong)
