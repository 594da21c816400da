"""The tolerance of a flow's attention: what a run hands on, what it costs in accuracy, what the path records."""

import pytest
import torch

import metastable as ms
from fuzz.runs import CASES
from metastable.errors import InvalidInput
from metastable.flows.attending import SHARE, share
from metastable.flows.plan import Plan
from small_runs import random_measure, random_weights, weights

FLOWS = (ms.SelfAttention, ms.UnnormalizedAttention, ms.EuclideanAttention)


def plan(rtol=1e-6, atol=0.0, dtype=torch.float64):
    return Plan(0.0, 1.0, rtol, atol, dtype=dtype)


def test_a_run_hands_on_a_share_of_its_tolerance_where_none_was_given():
    for flow in FLOWS:
        assert flow(weights(), 3.0).for_run(plan()).rtol == pytest.approx(SHARE * 1e-6)
        assert flow(weights(), 3.0, rtol=None).for_run(plan()).rtol is None
        assert flow(weights(), 3.0, rtol=1e-4).for_run(plan()).rtol == 1e-4
        assert flow(weights(), 3.0).rtol is None  # outside of a run: all digits


def test_the_share_keeps_within_what_kernels_can_do():
    assert share(plan(1e-14), "auto") == pytest.approx(1e-16)  # below every kernel with an error: all pairs
    assert share(plan(1e-14), "circle") == 1e-11
    assert share(plan(1e300), "auto") == 0.01
    assert share(plan(dtype=torch.float32), "auto") is None


def test_the_flow_of_the_caller_is_left_as_it_was():
    flow = ms.SelfAttention(weights(), 4.0)
    before = flow.describe()
    path = ms.solve(flow, ms.sphere.uniform(9, 2), 0.1, rtol=1e-5, atol=0.0)
    assert flow.describe() == before and flow._used == {}
    assert path.provenance["parameters"]["flow"]["rtol"] == pytest.approx(1e-7)


def test_few_tokens_keep_the_direct_kernel_and_its_digits():
    x = ms.sphere.uniform(200, 2, seed=3)
    ends = [ms.solve(ms.SelfAttention(weights(), 9.0, **how), x, 1.0).end.points for how in ({}, {"rtol": None})]
    assert torch.equal(*ends)


@pytest.mark.parametrize(
    ("seed", "n", "d", "kernel"), [(1, 700, 2, "circle"), (2, 700, 2, "circle"), (3, 400, 3, "sphere")]
)
def test_the_error_of_a_run_is_that_of_all_digits_to_a_hundredth(seed, n, d, kernel):
    w, x = random_weights(seed, d), ms.sphere.uniform(n, d, seed=seed)
    exact = ms.solve(ms.SelfAttention(w, 8.0, rtol=None), x, 1.5, rtol=1e-12, atol=1e-14).end.points
    ends = [
        ms.solve(ms.SelfAttention(w, 8.0, kernel=name, rtol=rtol), x, 1.5, rtol=1e-7, atol=1e-9)
        for name, rtol in (("auto", None), (kernel, "auto"))
    ]
    errors = [float((path.end.points - exact).norm(dim=1).max()) for path in ends]
    assert errors[1] == pytest.approx(errors[0], rel=0.01)
    attention = ends[1].provenance["attention"]
    assert attention["kernels"] == [kernel] and 0 < attention["largest_error"] <= SHARE * 1.01e-7
    assert attention["rtol"] == pytest.approx(SHARE * 1.01e-7)


def test_many_tokens_take_a_fast_kernel_by_default():
    path = ms.solve(ms.SelfAttention(weights(), 2.0), ms.sphere.uniform(30_000, 2), 0.02)
    assert set(path.provenance["attention"]["kernels"]) <= {"circle", "nearby"}
    assert path.provenance["attention"]["largest_error"] <= 1.01e-10


def test_what_was_used_is_recorded_and_recalled():
    rho = random_measure(4, 12, 3)
    flow = ms.SelfAttention(random_weights(4, 3), 2.0)
    path = ms.solve(flow, rho, 0.1)
    assert path.provenance["attention"] == {"rtol": 1.01e-10, "kernels": ["fused"], "largest_error": None}
    heads = ms.MultiHead([flow, ms.UnnormalizedAttention(random_weights(5, 3), 1.0, kernel="dense", rtol=1e-3)])
    record = ms.solve(heads, rho, 0.1).provenance["attention"]
    assert record == {"rtol": 1e-3, "kernels": ["dense", "fused"], "largest_error": None}
    going_on = heads.for_run(plan())
    going_on.recall({"attention": {"rtol": 1e-3, "kernels": ["circle"], "largest_error": 1e-4}})
    assert going_on.record()["attention"] == {"rtol": 1e-3, "kernels": ["circle"], "largest_error": 1e-4}


def test_a_flow_of_ones_own_is_not_copied():
    class Counting(ms.SelfAttention):
        calls = 0

        def drift(self, t, points, mass):
            self.calls += 1
            return super().drift(t, points, mass)

    flow = Counting(weights(), 2.0)
    path = ms.solve(flow, ms.sphere.uniform(9, 2), 0.1)
    assert flow.calls == path.provenance["statistics"]["evaluations"]


@pytest.mark.parametrize(
    "wrong", ["3", b"", [], {}, 0, -1.0, 1.0, float("nan"), 10**400, [1e-3, 1e-4], torch.ones(2)]
)
def test_nonsense_as_a_tolerance_or_kernel_is_refused_at_construction(wrong):
    for flow in FLOWS:
        with pytest.raises(InvalidInput, match="rtol must") as caught:
            flow(weights(), 1.0, rtol=wrong)
        assert len(str(caught.value)) < 200
        with pytest.raises(InvalidInput, match="unknown kernel"):
            flow(weights(), 1.0, kernel=wrong)


@pytest.mark.parametrize("seed", range(1000, 1012))
def test_random_cases(seed):
    assert CASES["attention_share"](seed) is None
