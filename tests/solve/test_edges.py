"""Edges that once went wrong: knots, exact zeros of events, foreign files, numbers of other types, repeats."""

import os

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput, StorageError
from metastable.solve import storage

W1 = ms.AttentionWeights(V=[[2.0, 0.0], [0.3, 1.0]], B=[[1.0, 0.5], [0.0, 1.0]])
W2 = ms.AttentionWeights(V=-5 * torch.eye(2), B=-torch.eye(2))
X0 = ms.sphere.uniform(9, 2, seed=4)


def run(**options):
    return ms.solve(ms.SelfAttention(W1, 3.0), X0, 1.0, **options)


@pytest.mark.parametrize("method", ["adaptive", "rk4", "euler"])
def test_final_time_on_a_knot_uses_the_weights_before_it(method):
    layered = ms.SelfAttention(ms.Schedule.layers([W1, W2], 2.0), 3.0)
    path = ms.solve(layered, X0, 1.0, method=method)
    assert torch.equal(path.end.points, run(method=method).end.points)


def test_knots_one_rounding_apart_are_one():
    ms.solve(ms.SelfAttention(ms.Schedule.layers([W1] * 5 + [W2] * 5, 1.0), 3.0), X0, 3 * 0.1)
    knots = [0.1 * k for k in range(11)]
    heads = [ms.Schedule.layers([W1] * 10, 1.0), ms.Schedule.layers([W1] * 10, 1.0, knots=knots)]
    path = ms.solve(ms.MultiHead([ms.SelfAttention(h, 3.0) for h in heads], "mean"), X0, 1.0)
    assert (path.end.points - run().end.points).abs().max() < 1e-8


def test_breakpoints_are_sorted():
    assert ms.Schedule(lambda t: W1, breakpoints=(1.5, 1.0, 1.5)).breakpoints == (1.0, 1.5)
    with pytest.raises(InvalidInput, match="breakpoints must be finite"):
        ms.Schedule(lambda t: W1, breakpoints=(float("nan"),))


def test_event_of_a_stepping_observable_is_located_inside_the_step(tmp_path):
    identity = ms.AttentionWeights(V=torch.eye(2), B=torch.eye(2))
    tokens = ms.sphere.from_angles(np.linspace(0, 2, 12))

    def stop(level):
        event = ms.Event(lambda x, m: ms.observe.cluster_count(x, 0.1), level=level, direction=-1, stop=True)
        return ms.solve(ms.SelfAttention(identity, 1.0), tokens, 20.0, events=[event])

    assert stop(1).end_time == pytest.approx(stop(1.5).end_time, abs=1e-9)


def test_the_same_call_gives_the_same_digits_on_two_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        x = ms.sphere.uniform(20000, 2, seed=1)
        flow = ms.SelfAttention(W1, 4.0, rtol=1e-9)
        first = ms.solve(flow, x, 0.05).end.points
        for _ in range(4):
            assert torch.equal(ms.solve(flow, x, 0.05).end.points, first)
    finally:
        torch.set_num_threads(threads)


def test_foreign_folders_are_left_alone(tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "important.txt").write_text("keep me")
    with pytest.raises(StorageError, match="exists and is not a metastable path"):
        run().save(folder)
    with pytest.raises(StorageError, match="exists and is not a metastable path"):
        run(out=folder, resume=False)
    assert (folder / "important.txt").read_text() == "keep me"
    run().save(f"{tmp_path}/run.zarr/")
    assert len(ms.load(f"{tmp_path}/run.zarr/")) == 2


def test_other_schedules_and_observables_are_other_runs(tmp_path):
    def schedule(rate):
        return ms.SelfAttention(
            ms.Schedule(lambda t: ms.AttentionWeights(V=(1 + rate * t) * np.eye(2), B=np.eye(2))), 1.0
        )

    ms.solve(schedule(0.0), X0, 1.0, out=tmp_path / "s.zarr")
    with pytest.raises(StorageError, match="holds another run"):
        ms.solve(schedule(5.0), X0, 1.0, out=tmp_path / "s.zarr")
    run(out=tmp_path / "e.zarr", events=[ms.Event(lambda x, m: x[0, 0], 2.0)])
    with pytest.raises(StorageError, match="holds another run"):
        run(out=tmp_path / "e.zarr", events=[ms.Event(lambda x, m: x[1, 1], 2.0)])


def test_a_failure_in_the_last_phase_is_repaired_by_the_same_call(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(storage, "swap_in", full)
        with pytest.raises(StorageError, match="No space left"):
            run(out=tmp_path / "r.zarr", checkpoint_every=0.0)
    again = run(out=tmp_path / "r.zarr", checkpoint_every=0.0)
    assert torch.equal(again.end.points, run().end.points)


def test_a_replaced_store_does_not_answer_for_the_old_path(tmp_path):
    old = run(out=tmp_path / "r.zarr")
    ms.solve(ms.SelfAttention(W1, 9.0), X0, 1.0, out=tmp_path / "r.zarr", resume=False)
    with pytest.raises(StorageError, match="holds another run now"):
        _ = old.points
    new = ms.load(tmp_path / "r.zarr")
    for folder, _, files in os.walk(tmp_path / "r.zarr" / "points" / "c"):
        for file in files:
            os.remove(os.path.join(folder, file))
    with pytest.raises(StorageError, match="frames are missing"):
        _ = new.points


def test_interrupt_between_checkpoints_keeps_what_was_computed(tmp_path):
    calls = 0

    def observed(x, m):
        nonlocal calls
        calls += 1
        if calls == 12:
            raise KeyboardInterrupt
        return float(x[0, 0])

    with pytest.raises(KeyboardInterrupt):
        run(out=tmp_path / "r.zarr", events=[ms.Event(observed, 2.0)])
    assert (tmp_path / "r.zarr.partial" / "checkpoint.npz").exists()
    resumed = run(out=tmp_path / "r.zarr", events=[ms.Event(lambda x, m: x[0, 0], 2.0)])
    assert torch.equal(resumed.end.points, run(events=[ms.Event(lambda x, m: x[0, 0], 2.0)]).end.points)


def test_numpy_scalars_and_wrong_types(tmp_path):
    path = run(out=tmp_path / "n.zarr", seed=np.int64(3), rtol=np.float32(1e-6), max_step=np.float64(0.5))
    assert path.provenance["seed"] == 3
    assert ms.Event(lambda x, m: 0.0, level=np.int64(2)).level == 2.0
    for options, match in (
        ({"rtol": "x"}, "rtol must be a number"),
        ({"seed": 1.5}, "seed must be an integer"),
        ({"events": ms.Event(lambda x, m: 0.0)}, "sequence of Event"),
        ({"times": [[0.0, 1.0]]}, "one row of numbers"),
        ({"times": True}, "one row of numbers"),
    ):
        with pytest.raises(InvalidInput, match=match):
            run(**options)
    assert ms.solve(ms.SelfAttention(W1, 3.0), X0, 0.0, times=5).times.tolist() == [0.0]


def test_hardmax_runs_with_an_indefinite_score():
    g = torch.Generator().manual_seed(1)
    w = ms.AttentionWeights(
        V=torch.randn(3, 3, generator=g, dtype=torch.float64), B=torch.randn(3, 3, generator=g, dtype=torch.float64)
    )
    path = ms.solve(ms.Hardmax(w), ms.sphere.uniform(20, 3, seed=1), 5.0)
    assert path.provenance["parameters"]["method"] == "rk4"
    assert (path.end.points.norm(dim=1) - 1).abs().max() < 1e-12


def test_tiny_steps_far_from_a_huge_final_time_are_allowed():
    fast = ms.AttentionWeights(V=1e3 * torch.eye(2), B=torch.eye(2))
    stop = ms.Event(lambda x, m: (m @ x).norm(), level=0.99, stop=True)
    path = ms.solve(ms.SelfAttention(fast, 1.0), ms.sphere.from_angles([0.0, 1.0, 2.0]), 1e12, events=[stop])
    assert 0 < path.end_time < 1.0
    for beta in (30.0, 100.0):
        flow = ms.UnnormalizedAttention(ms.AttentionWeights(V=torch.eye(2), B=torch.eye(2)), beta)
        assert torch.isfinite(ms.solve(flow, X0, 1.0).end.points).all()
