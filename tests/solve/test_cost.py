"""What a run will cost, said before its first step."""

import pytest
import torch

import metastable as ms
from metastable.solve.cost import PILOT, estimate, spoken
from small_runs import weights


def cost(n=4000, d=2, dtype=None, t=1.0, **how):
    w = weights() if d == 2 else ms.AttentionWeights(V=torch.eye(d), B=torch.eye(d))
    rho = ms.Measure(ms.sphere.uniform(n, d), dtype=dtype)
    return estimate(ms.SelfAttention(w, 2.0, **how), rho, t, 1e-8, 1e-10, "auto", None)


@pytest.fixture(autouse=True)
def every_run_is_long(monkeypatch):
    monkeypatch.setattr("metastable.solve.cost.SHORTEST", 0.0)


def test_the_evaluations_are_those_of_the_run():
    found = cost(n=PILOT, rtol=None)
    path = ms.solve(ms.SelfAttention(weights(), 2.0, rtol=None), ms.sphere.uniform(PILOT, 2), 1.0)
    assert found.evaluations == path.provenance["statistics"]["evaluations"]
    assert found.kernel == "fused" and found.seconds == found.evaluations * found.evaluation


def test_all_pairs_cost_in_proportion_and_a_million_tokens_say_so():
    few, many = (cost(n, rtol=None, t=0.01).evaluation for n in (10_000, 1_000_000))
    assert many == pytest.approx(10_000 * few, rel=0.01)
    assert cost(1_000_000, t=0.01).evaluation < many / 100


def test_what_would_be_cheaper():
    assert "a tolerance for the attention" in cost(rtol=None).cheaper
    assert "dtype float64" in cost(dtype=torch.float32).cheaper
    assert "the kernel auto" in cost(kernel="dense").cheaper
    assert "fewer tokens" in cost(d=5).cheaper
    assert "rtol = 1e-5 instead of 1e-08" in cost(n=100_000, t=0.01).cheaper
    assert str(cost(rtol=None)).count("\n") == 0


def test_a_short_run_or_one_of_unknown_cost_has_none(monkeypatch):
    rho = ms.Measure(ms.sphere.uniform(9, 2))
    assert estimate(ms.Hardmax(weights()), rho, 1.0, 1e-8, 1e-10, "auto", None) is None
    monkeypatch.setattr("metastable.solve.cost.SHORTEST", 0.05)
    assert cost(n=100) is None


def test_durations_as_one_says_them():
    assert [spoken(s) for s in (3.2, 119.0, 150.0, 7300.0)] == ["3 s", "119 s", "2 min", "2 h"]
