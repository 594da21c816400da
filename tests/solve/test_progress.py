"""Progress: a bar, a function, an observer, or nothing."""

import re

import pytest
import torch

from metastable.errors import InvalidInput
from metastable.solve import Observer
from metastable.solve.progress import LogLines, ProgressBar, Report, progress_observers
from small_runs import small_run


def test_a_function_is_told_time_and_steps():
    told = []
    path = small_run(progress=lambda t, steps: told.append((t, steps)) or True)
    assert told[-1] == (2.0, path.provenance["statistics"]["accepted_steps"])
    assert [steps for _, steps in told] == list(range(1, len(told) + 1))


def test_a_bar_comes_and_goes(capsys):
    path = small_run(progress=True)
    assert torch.equal(path.end.points, small_run().end.points)
    assert capsys.readouterr().out == ""


def test_a_bar_is_taken_away_when_the_run_breaks_off():
    bar = ProgressBar()

    class Failing(Observer):
        def step(self, step):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small_run(progress=bar, observers=[Failing()])
    assert bar._bar.live.is_started is False


def test_without_a_terminal_a_line_is_written_from_time_to_time(capsys):
    lines = LogLines(every=0.0)
    path = small_run(progress=lines)
    written = capsys.readouterr().err.splitlines()
    assert len(written) == path.provenance["statistics"]["accepted_steps"] - 1  # the end needs no line
    assert re.fullmatch(r"t = [\d.e-]+ of 2, 1 steps in \d+ s, at this pace \d+ s left", written[0])
    assert lines.begun_at == 0.0
    small_run(progress=LogLines())
    assert capsys.readouterr().err == ""


def test_it_is_known_where_a_run_began(tmp_path):
    bar, again = ProgressBar(), LogLines()
    small_run(progress=bar, out=tmp_path / "run.zarr")
    small_run(progress=again, out=tmp_path / "run.zarr")
    assert bar.begun_at == 0.0 and again.begun_at is None


def test_what_stands_for_an_observer():
    class Own(Observer):
        def __call__(self, t, steps):
            raise AssertionError

    own = Own()
    assert progress_observers(own) == (own,)
    assert isinstance(progress_observers(print)[0], Report)
    assert isinstance(progress_observers(True)[0], ProgressBar)
    for nothing in (False, None, 0):
        assert progress_observers(nothing) == ()
    for wrong in ("yes", 2.5, Own):
        with pytest.raises(InvalidInput, match=r"progress must be True, False, a function of \(t, steps\) or an"):
            small_run(progress=wrong)
