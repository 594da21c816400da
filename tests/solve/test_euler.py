"""Euler's method: what one step is, for a field on the sphere and for a residual layer."""

import itertools
import math

import pytest
import torch

import metastable as ms


def heads():
    g = torch.Generator().manual_seed(5)
    pairs = torch.randn(2, 2, 3, 3, generator=g, dtype=torch.float64)
    return [ms.SelfAttention(ms.AttentionWeights(V=V, B=B), 1.5) for V, B in pairs]


def unit(rows):
    return rows / rows.norm(dim=1, keepdim=True)


RHO = ms.Measure(ms.sphere.uniform(9, 3, seed=2))


def test_a_step_adds_the_velocity():
    flow = ms.MultiHead(heads())
    end = ms.solve(flow, RHO, 0.5, method="euler", step=0.5).end.points
    torch.testing.assert_close(end, unit(RHO.points + 0.5 * flow.velocity(0.0, *RHO)), rtol=0, atol=1e-15)


def test_a_step_of_a_residual_flow_adds_the_drift_itself():
    """s <- (s + F)/|s + F|, step after step: the layers of a transformer, not their tangent."""
    flow = ms.MultiHead(heads(), residual=True)
    points = RHO.points
    frames = [points]
    for _ in range(5):
        points = unit(points + flow.drift(0.0, points, RHO.mass).vector)
        frames.append(points)
    path = ms.solve(flow, RHO, 5, times=range(6), method="euler", step=1.0)
    torch.testing.assert_close(path.points, torch.stack(frames), rtol=0, atol=1e-13)
    tangent = ms.solve(ms.MultiHead(heads()), RHO, 5, method="euler", step=1.0).end.points
    assert float((path.end.points - tangent).abs().max()) > 0.01


@pytest.mark.parametrize("residual", [False, True])
def test_the_order_is_one(residual):
    flow = ms.MultiHead(heads(), residual=residual)
    truth = ms.solve(flow, RHO, 0.5, rtol=1e-12, atol=1e-13).end.points
    errors = [
        float((ms.solve(flow, RHO, 0.5, method="euler", step=h).end.points - truth).abs().max())
        for h in (0.005, 0.0025, 0.00125)
    ]
    for coarse, fine in itertools.pairwise(errors):
        assert math.log2(coarse / fine) == pytest.approx(1, abs=0.1)


def test_only_euler_takes_a_residual_flow_at_its_word():
    """The other methods solve x' = P_x F, residual or not."""
    for method in ("rk4", "adaptive"):
        layer, flow = (ms.solve(ms.MultiHead(heads(), residual=r), RHO, 0.3, method=method) for r in (True, False))
        torch.testing.assert_close(layer.end.points, flow.end.points, rtol=0, atol=0)


def test_a_jump_of_the_weights_ends_a_step_of_a_residual_flow():
    """Two layers in turn: each step uses the layer that it begins with, up to the jump."""
    first, second = (head.weights for head in heads())
    flow = ms.MultiHead([ms.SelfAttention(ms.Schedule.layers([first, second], 2.0), 1.5)], residual=True)
    middle = unit(RHO.points + ms.SelfAttention(first, 1.5).drift(0.0, *RHO).vector)
    expected = unit(middle + ms.SelfAttention(second, 1.5).drift(0.0, middle, RHO.mass).vector)
    end = ms.solve(flow, RHO, 2.0, method="euler", step=1.0).end.points
    torch.testing.assert_close(end, expected, rtol=0, atol=1e-14)
