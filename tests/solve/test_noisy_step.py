"""Runs with noise: one seed one path, killed or not, for any number of threads; refinement; times inside steps."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import torch

import metastable as ms
from metastable.flows import CommonNoise
from metastable.solve.methods import METHODS
from small_runs import random_weights

METHOD_NAMES = [name for name, kind in METHODS.items() if kind.stochastic]


def flow(activation="relu", scale=0.7):
    return CommonNoise(ms.SelfAttention(random_weights(1, 3), 2.0), activation, scale=scale)


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("method", METHOD_NAMES)
@pytest.mark.parametrize("activation", ["linear", "relu"])
def test_an_interrupted_run_resumes_bit_for_bit(method, activation, tmp_path):
    x, how = ms.sphere.uniform(8, 3, seed=1), {"times": 7, "step": 0.03, "method": method, "seed": 11}
    whole = ms.solve(flow(activation), x, 1.0, **how)
    for after in (1, 17, 30):

        def interrupt(t, steps):
            if steps > after:  # noqa: B023
                raise Interrupted

        out = tmp_path / f"run{after}.zarr"
        with pytest.raises(Interrupted):
            ms.solve(flow(activation), x, 1.0, out=out, checkpoint_every=0.0, progress=interrupt, **how)
        with pytest.raises(ms.errors.StorageError, match="other parameters"):
            ms.solve(flow(activation), x, 1.0, out=out, **how | {"seed": 12})
        resumed = ms.solve(flow(activation), x, 1.0, out=out, **how)
        assert torch.equal(resumed.points, whole.points) and torch.equal(resumed.end.points, whole.end.points)
        assert resumed.provenance["seed"] == 11


def test_a_killed_process_resumes_bit_for_bit(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys, metastable as ms
            from metastable.flows import CommonNoise
            ms.solve(CommonNoise(activation="gelu"), ms.sphere.uniform(12, 3, seed=1), 12.0, times=9, step=0.05,
                     seed=5, out=sys.argv[1], checkpoint_every=0.0)
            """
        )
    )
    out = tmp_path / "run.zarr"
    run = subprocess.Popen([sys.executable, str(script), str(out)])
    for _ in range(1200):
        if os.path.exists(f"{out}.partial/checkpoint.npz"):
            break
        time.sleep(0.05)
    time.sleep(0.1)
    run.send_signal(signal.SIGKILL)
    assert run.wait() != 0
    how = {"times": 9, "step": 0.05, "seed": 5}
    x = ms.sphere.uniform(12, 3, seed=1)
    resumed = ms.solve(CommonNoise(activation="gelu"), x, 12.0, out=out, **how)
    assert torch.equal(resumed.points, ms.solve(CommonNoise(activation="gelu"), x, 12.0, **how).points)


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_seeds_and_threads(method):
    x = ms.sphere.uniform(150, 3, seed=1)
    before, found = torch.get_num_threads(), []
    try:
        for threads, seed in ((1, 3), (2, 3), (1, 4)):
            torch.set_num_threads(threads)
            found.append(ms.solve(flow(), x, 0.1, step=0.02, method=method, seed=seed).end.points)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert float((found[0] - found[2]).abs().max()) > 0.05


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_kept_times_change_nothing_and_lie_on_the_path(method):
    x = ms.sphere.uniform(5, 3, seed=1)
    how = {"step": 0.05, "method": method, "seed": 2}
    plain = ms.solve(flow("linear"), x, 0.5, **how)
    kept = ms.solve(flow("linear"), x, 0.5, times=[0.0, 0.1, 0.12, 0.13, 0.15, 0.5], **how)
    assert torch.equal(kept.end.points, plain.end.points)
    assert torch.allclose(kept.points[4], ms.solve(flow("linear"), x, 0.15, **how).end.points, atol=1e-13)
    finer = ms.solve(flow("linear"), x, 0.5, times=kept.times, step=0.05 / 32, method=method, seed=2)
    assert (
        float((finer.points - kept.points).abs().max()) < 0.5
    )  # strong error of the coarse steps, not of the times
    cut = ms.solve(flow("linear"), x, 0.12, **how).end.points
    assert torch.allclose(kept.points[2], cut, atol=1e-12)


def test_an_extended_path_is_the_longer_run(tmp_path):
    x = ms.sphere.uniform(5, 3, seed=1)
    short = ms.solve(flow(), x, 0.52, times=3, step=0.05, seed=7)
    longer = ms.solve(flow(), x, 1.3, times=[0.0, 0.26, 0.52, 1.3], step=0.05, seed=7)
    assert torch.equal(short.extend(1.3).points, longer.points)
    short.save(tmp_path / "short.zarr")
    assert torch.equal(ms.load(tmp_path / "short.zarr").extend(1.3).points, longer.points)


def test_events_are_found_inside_steps():
    event = ms.Event(lambda x, m: x[0, 0], level=0.0, name="over", stop=True)
    x = torch.tensor([[1.0, 0.0], [0.6, 0.8]]).double()
    path = ms.solve(CommonNoise(activation="constant"), x, 50.0, step=0.1, seed=1, events=[event])
    assert path.end_time < 50 and abs(float(path.end.points[0, 0])) < 1e-6


def test_runs_may_begin_at_any_time_and_have_any_step():
    x = ms.sphere.uniform(3, 2, seed=1)
    for t0, h in ((0.0, 3.7), (-2.5, 0.3), (1000.0, 0.1), (0.0, 1e-9)):
        path = ms.solve(CommonNoise(activation="linear"), x, t0 + 7 * h, step=h, t0=t0, seed=1)
        assert path.provenance["statistics"]["accepted_steps"] == 7
