"""What a flow knows of a run before it begins."""

import torch

import metastable as ms
from metastable.flows.plan import Plan
from small_runs import flow


def test_solve_makes_the_plan_of_the_run():
    plans = []

    class Asked(ms.SelfAttention):
        def for_run(self, plan):
            plans.append(plan)
            return super().for_run(plan)

    w = flow().weights
    ms.solve(Asked(w, 1.0), ms.sphere.uniform(5, 2), 0.5, rtol=1e-6, atol=1e-7, step=0.25, dtype=torch.float32)
    assert plans == [Plan(0.0, 0.5, 1e-6, 1e-7, 0.25, torch.float32)]
