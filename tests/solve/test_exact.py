"""The exact method: against an integrator, with layers, events, and the flows that it refuses."""

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

import metastable as ms
import reference
from metastable.errors import InvalidInput
from metastable.solve.exact import EVENT_STEPS, Exact
from small_runs import gaussian, weights


def dop853(field, x0, t):
    shape = x0.shape
    run = solve_ivp(
        lambda _, y: field(y.reshape(shape)).ravel(), (0, t), x0.ravel(), method="DOP853", rtol=1e-12, atol=1e-13
    )
    return run.y[:, -1].reshape(shape)


@pytest.mark.parametrize("method", ["exact", "adaptive"])
def test_z1_zero_temperature_orbit_against_scipy(method):
    w = ms.AttentionWeights(V=gaussian(1, 4, 4), B=gaussian(2, 4, 4))
    x0 = ms.sphere.uniform(6, 4, seed=3)
    path = ms.solve(ms.ZeroTemperature(w), x0, 3.0, times=[0.5, 3.0], method=method, rtol=1e-10, atol=1e-12)
    for t, points in zip(path.times, path.points, strict=True):
        expected = dop853(lambda x: reference.zero_temperature(x, w.V.numpy(), w.B.numpy()), x0.numpy(), float(t))
        assert np.abs(points.numpy() - expected).max() < 1e-8


def test_event_of_the_exact_flow():
    event = ms.Event(lambda x, m: x[0, 0], level=0.9, stop=True)
    w = ms.AttentionWeights(V=torch.diag(torch.tensor([2.0, 1.0])), B=torch.eye(2))
    path = ms.solve(ms.ZeroTemperature(w), [[0.6, 0.8]], 10.0, events=[event])
    expected = np.log((0.8 / 0.6) / (np.sqrt(1 - 0.81) / 0.9))
    assert path.end_time == pytest.approx(expected, abs=1e-10)


def test_layers_are_solved_piece_by_piece():
    first, second = weights(), ms.AttentionWeights(V=torch.eye(2), B=-torch.eye(2))
    x0 = ms.sphere.uniform(9, 2, seed=4)
    layered = ms.SelfAttention(ms.Schedule.layers([first, second], 2.0), 3.0)
    whole = ms.solve(layered, x0, 2.0, times=[1.0, 2.0])
    half = ms.solve(ms.SelfAttention(first, 3.0), x0, 1.0).end
    end = ms.solve(ms.SelfAttention(second, 3.0), half, 1.0).end
    assert (whole.points[0] - half.points).abs().max() < 1e-12
    assert (whole.end.points - end.points).abs().max() < 1e-8
    zero = ms.ZeroTemperature(ms.Schedule.layers([first, second], 2.0))
    exact, adaptive = ms.solve(zero, x0, 2.0), ms.solve(zero, x0, 2.0, method="adaptive")
    assert exact.provenance["parameters"]["method"] == "exact"
    assert (exact.end.points - adaptive.end.points).abs().max() < 1e-7


def test_one_step_unless_there_is_something_to_look_for():
    flow, x0 = ms.ZeroTemperature(weights()), ms.sphere.uniform(5, 2, seed=1)
    event = ms.Event(lambda x, m: x[0, 0], level=5.0)
    for options, count in (({}, 1), ({"step": 0.5}, 4), ({"events": [event]}, EVENT_STEPS)):
        path = ms.solve(flow, x0, 2.0, times=100, **options)
        assert path.provenance["statistics"]["accepted_steps"] == count
        assert (path.end.points - ms.solve(flow, x0, 2.0).end.points).abs().max() < 1e-12


def test_weights_that_change_smoothly_are_refused():
    moving = ms.ZeroTemperature(ms.Schedule(lambda t: weights()))
    assert "needs constant or layered weights" in Exact().refusal(moving)
    with pytest.raises(InvalidInput, match="needs constant or layered weights; use 'adaptive' for this Schedule"):
        ms.solve(moving, [[1.0, 0.0]], 1.0, method="exact")
    assert ms.solve(moving, [[1.0, 0.0]], 1.0).provenance["parameters"]["method"] == "dop853"
