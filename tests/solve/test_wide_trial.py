"""Steps in many dimensions: the same steps as stage by stage, and what is left to the flow."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.solve import embedded
from metastable.solve.adaptive import Adaptive
from metastable.solve.dop853 import Dop853
from metastable.solve.problem import Problem
from metastable.solve.wide_trial import wide_trial
from metastable.threads import blas_can_be_held


def attention(d: int, beta: float, V: str = "dense", B: str = "dense", **options) -> ms.SelfAttention:
    rng = np.random.default_rng(d)
    dense = [np.eye(d) + rng.standard_normal((d, d)) / (4 * d) ** 0.5 for _ in range(2)]
    diagonal = np.diag(np.linspace(2.0, 1.0, d))
    chosen = [diagonal if kind == "diagonal" else matrix for kind, matrix in zip((V, B), dense, strict=True)]
    return ms.SelfAttention(ms.AttentionWeights(V=chosen[0], B=chosen[1]), beta, **options)


@pytest.mark.parametrize(
    ("n", "d", "beta", "V", "B", "equal"),
    [
        (40, 12, 8.0, "dense", "dense", True),
        (150, 33, 900.0, "dense", "diagonal", False),
        (150, 9, 64.0, "diagonal", "dense", True),
        (3, 70, 1.0, "diagonal", "diagonal", False),
        (520, 9, 4.0, "dense", "dense", False),  # more tokens than a small system has
    ],
)
def test_runs_are_those_of_steps_made_stage_by_stage(n, d, beta, V, B, equal, monkeypatch):
    """Frames inside steps and the end, with scores that are shifted and some that are not."""
    flow, mass = attention(d, beta, V, B), None if equal else np.linspace(1.0, 2.0, n)
    rho = ms.Measure(ms.sphere.uniform(n, d, seed=1), mass)
    runs = []
    for made in (wide_trial, lambda *_: None):
        monkeypatch.setattr(embedded, "wide_trial", made)
        runs.append(ms.solve(flow, rho, 2.0, times=np.linspace(0, 2, 9)))
    fast, plain = runs
    assert float((fast.points - plain.points).abs().max()) < 1e-12
    assert fast.provenance["statistics"] == plain.provenance["statistics"]
    assert set(fast.provenance["attention"]["kernels"]) == {"products"}


@pytest.mark.skipif(not blas_can_be_held(), reason="threads would share a BLAS that cannot be held")
def test_digits_do_not_depend_on_the_number_of_threads():
    flow, rho = attention(40, 8.0), ms.Measure(ms.sphere.uniform(300, 40, seed=3))
    threads, ends = torch.get_num_threads(), []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            ends.append(ms.solve(flow, rho, 0.2).end.points)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*ends)


def test_what_is_left_to_the_flow():
    few = ms.Measure(ms.sphere.uniform(5, 9, seed=0))

    def taken(flow, rho=few, pair=None) -> bool:
        problem, pair = Problem(flow, rho.mass, 1e-8, 1e-10, None, np.inf), pair or Dop853()
        return wide_trial(problem, rho.points, pair._stage_memory(rho.points), pair) is not None

    assert taken(attention(9, 2.0))
    assert not taken(attention(9, 2.0), pair=Adaptive())
    assert not taken(attention(9, 2.0, kernel="blocks"))
    assert not taken(attention(9, 2.0, field=np.ones(9)))
    assert not taken(ms.Causal(attention(9, 2.0)))
    assert not taken(attention(4, 2.0), ms.Measure(ms.sphere.uniform(5, 4, seed=0)))
    assert not taken(attention(9, 2.0), ms.Measure(few.points, [1.0, 1.0, 0.0, 1.0, 1.0]))
    assert not taken(attention(9, 2.0), ms.Measure(few.points, [1.0, 1.0, 1e-120, 1.0, 1.0]))
    low = ms.AttentionWeights.from_qkv(*(torch.randn(4, 9, dtype=torch.float64) for _ in range(2)), torch.eye(9))
    assert not taken(ms.SelfAttention(low, 1.0))


def test_the_same_digits_wherever_the_memory_begins(tmp_path):
    flow, rho = attention(33, 16.0), ms.Measure(ms.sphere.uniform(60, 33, seed=2))
    whole = ms.solve(flow, rho, 2.0, times=[0.5, 2.0])
    between = [np.empty(k) for k in range(1, 400, 7)]
    part = ms.solve(flow, rho, 0.5)
    longer = part.extend(2.0, times=[2.0])
    assert len(between) and torch.equal(whole.points[-1], longer.points[-1])
    stored = ms.solve(flow, rho, 2.0, times=[0.5, 2.0], out=tmp_path / "run.zarr")
    assert torch.equal(whole.points, stored.points)
