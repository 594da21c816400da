import math

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput, NoEnergy
from metastable.flows.driven import DrivenAttention
from reference import project, softmax_mean

W = ms.AttentionWeights(V=[[1.0, 0.3], [0.0, 0.5]], B=[[1.0, 0.5], [0.0, 1.0]])
RHO = ms.Measure(ms.sphere.uniform(30, 2, seed=1), mass=np.arange(1.0, 31.0))


def test_a_crowd_of_the_tokens_themselves_is_self_attention():
    flow = DrivenAttention(W, 7.0, lambda t: RHO.points, RHO.mass)
    own = ms.SelfAttention(W, 7.0).velocity(0.0, RHO.points, RHO.mass)
    assert torch.allclose(flow.velocity(0.0, RHO.points, RHO.mass), own, atol=1e-15)


@pytest.mark.parametrize("factored", [False, True])
def test_other_tokens_see_the_crowd_at_its_time(factored):
    g = torch.Generator().manual_seed(0)
    low = [torch.randn(2, 3, generator=g, dtype=torch.float64) for _ in range(4)]
    w = ms.AttentionWeights.from_qkv(*low[:3], low[3].T)
    w = w if factored else ms.AttentionWeights(V=w.V, B=w.B)
    x, y = ms.sphere.uniform(5, 3, seed=2), ms.sphere.uniform(40, 3, seed=3)
    mass = torch.full((40,), 1 / 40, dtype=torch.float64)
    crowd = {0.0: y, 0.5: ms.sphere.normalize(y + 0.3)}
    flow = DrivenAttention(w, 3.0, crowd.__getitem__, mass)
    for t, keys in crowd.items():
        mean, _ = softmax_mean(x.numpy() @ w.B.numpy(), keys.numpy(), keys.numpy(), mass, 3.0)
        expected = project(x.numpy(), mean @ w.V.numpy().T)
        found = flow.velocity(t, x, torch.full((5,), 0.2, dtype=torch.float64)).numpy()
        assert np.allclose(found, expected, atol=1e-13)


def test_rk4_keeps_its_order_in_the_field_of_a_moving_crowd():
    def crowd(t):
        return ms.sphere.from_angles([1.0 + 2.0 * math.sin(t)])

    flow = DrivenAttention(W, 4.0, crowd, torch.ones(1, dtype=torch.float64))
    x = ms.sphere.equispaced(8)
    exact = ms.solve(flow, x, t=1.0, rtol=1e-12, atol=1e-12).end.points
    ends = [ms.solve(flow, x, 1.0, method="rk4", step=h).end.points for h in (0.1, 0.05)]
    coarse, fine = (float((end - exact).abs().max()) for end in ends)
    assert math.log2(coarse / fine) == pytest.approx(4, abs=0.5)


def test_what_it_says_of_itself(tmp_path):
    """Two crowds that start alike are two flows: a run is never taken for that of another crowd."""
    flow = DrivenAttention(W, 7.0, lambda t: RHO.points, RHO.mass)
    other = DrivenAttention(W, 7.0, lambda t: RHO.points if t == 0 else -RHO.points, RHO.mass)
    assert flow.describe()["crowd"]["n"] == 30
    assert flow.describe() != other.describe()
    with pytest.raises(InvalidInput, match="crowd cannot be read"):
        ms.solve(flow, RHO, 0.1, out=tmp_path / "run.zarr")
    with pytest.raises(NoEnergy, match="no energy of their own"):
        flow.energy(RHO.points, RHO.mass)
    with pytest.raises(InvalidInput, match=r"crowd\(t\) must have shape \(30, 2\).*got \(4, 3\)"):
        DrivenAttention(W, 7.0, lambda t: ms.sphere.uniform(4, 3), RHO.mass)
