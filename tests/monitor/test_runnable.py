import subprocess

import pytest
import torch
from torch import nn

from metastable.errors import InvalidInput
from metastable.monitor import runnable
from metastable.monitor.runnable import bfloat16_runs, refuse_what_dies


@pytest.mark.parametrize(("code", "runs"), [(0, True), (1, True), (-4, False)])
def test_a_process_that_a_signal_ends_is_the_answer(monkeypatch, code: int, runs: bool) -> None:
    bfloat16_runs.cache_clear()
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, code))
    assert bfloat16_runs() is runs
    bfloat16_runs.cache_clear()


def test_only_models_in_bfloat16_are_asked_about(monkeypatch) -> None:
    monkeypatch.setattr(runnable, "bfloat16_runs", lambda: False)
    refuse_what_dies(nn.Linear(3, 3))
    refuse_what_dies(nn.Linear(3, 3).double())
    with pytest.raises(InvalidInput, match="bfloat16 end the process"):
        refuse_what_dies(nn.Linear(3, 3).to(torch.bfloat16))
    monkeypatch.setattr(runnable, "bfloat16_runs", lambda: True)
    refuse_what_dies(nn.Linear(3, 3).to(torch.bfloat16))


def test_the_monitor_asks_before_it_runs_a_model(monkeypatch, encoder, bert) -> None:
    import copy

    from metastable.monitor import Monitor
    from walks import walks

    monkeypatch.setattr(runnable, "bfloat16_runs", lambda: False)
    with pytest.raises(InvalidInput, match="ONEDNN_MAX_CPU_ISA"):
        Monitor.calibrate(encoder, walks(80, 0), model=copy.deepcopy(bert).to(torch.bfloat16))
