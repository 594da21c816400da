import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

import metastable as ms
from metastable.errors import InvalidInput
from metastable.measure import Ensemble

W = ms.AttentionWeights(V=[[1.0, 0.2], [0.0, 0.8]], B=[[1.0, 0.3], [-0.1, 0.7]])
TIMES = [0.0, 0.4, 1.1, 2.0]


def systems(b: int, n: int, d: int = 2, seed: int = 0) -> Ensemble:
    g = torch.Generator().manual_seed(seed)
    points, mass = torch.randn(b, n, d, dtype=torch.float64, generator=g), torch.rand(b, n, generator=g)
    return Ensemble(points, mass.double())


def reference(x: np.ndarray, m: np.ndarray, beta: float, t: float) -> np.ndarray:
    """x' = P_x V m_beta(x) by SciPy's DOP853 at 1e-12, written out."""
    V, B = W.V.numpy(), W.B.numpy()

    def field(_t: float, flat: np.ndarray) -> np.ndarray:
        y = flat.reshape(x.shape)
        y = y / np.linalg.norm(y, axis=1, keepdims=True)
        a = m * np.exp(beta * (y @ B @ y.T))
        v = (a / a.sum(1, keepdims=True)) @ y @ V.T
        return (v - (v * y).sum(1, keepdims=True) * y).ravel()

    y = solve_ivp(field, (0, t), x.ravel(), method="DOP853", rtol=1e-12, atol=1e-13).y[:, -1].reshape(x.shape)
    return y / np.linalg.norm(y, axis=1, keepdims=True)


@pytest.mark.parametrize("method", ["auto", "dop853", "adaptive"])
def test_every_system_is_solved_as_if_alone(method: str) -> None:
    many, betas = systems(6, 7), [0.0, 0.5, 1.0, 4.0, 9.0, 30.0]
    path = ms.solve(ms.SelfAttention(W, betas), many, 2.0, TIMES, method=method)
    assert path.points.shape == (4, 6, 7, 2) and path.mass.shape == (6, 7)
    for s, beta in enumerate(betas):
        exact = reference(*many[s].numpy(), beta, 2.0)
        assert float((path.end.points[s] - torch.from_numpy(exact)).abs().max()) < 2e-8
        alone = ms.solve(ms.SelfAttention(W, beta), many[s], 2.0, TIMES, method=method)
        assert float((path.points[:, s] - alone.points).abs().max()) < 2e-9
        steps = path.provenance["statistics"]["steps_of_systems"][s]
        assert steps == alone.provenance["statistics"]["accepted_steps"]


@pytest.mark.parametrize(
    "make",
    [
        lambda beta: ms.UnnormalizedAttention(W, beta),
        lambda beta: ms.EuclideanAttention(W, beta),
        lambda beta: ms.MultiHead([ms.SelfAttention(W, beta), ms.SelfAttention(W, 2.0)]),
        lambda beta: ms.SelfAttention(W, beta, field=[0.3, -0.2]),
    ],
)
def test_other_flows_agree_with_single_runs(make) -> None:
    many, betas = systems(3, 5, seed=1), [0.0, 1.0, 3.0]
    path = ms.solve(make(torch.tensor(betas)), many, 1.0)
    for s, beta in enumerate(betas):
        alone = ms.solve(make(beta), many[s], 1.0)
        assert float((path.end.points[s] - alone.end.points).abs().max()) < 1e-8


def test_the_order_of_systems_does_not_matter() -> None:
    many, order = systems(9, 6), torch.randperm(9, generator=torch.Generator().manual_seed(0))
    betas = torch.linspace(0, 8, 9)
    one = ms.solve(ms.SelfAttention(W, betas), many, 3.0)
    other = ms.solve(ms.SelfAttention(W, betas[order]), Ensemble(many.points[order], many.mass[order]), 3.0)
    assert bool((one.end.points[order] == other.end.points).all())


def test_one_system_of_one_token_and_a_time_of_zero() -> None:
    many = Ensemble([[[0.0, 1.0]]])
    path = ms.solve(ms.SelfAttention(W, 2.0), many, 0.0)
    assert path.points.shape == (1, 1, 1, 2) and bool((path.end.points == many.points).all())
    moved = ms.solve(ms.SelfAttention(W, 2.0), many, 1.0).end
    assert float((moved.points[0] - ms.solve(ms.SelfAttention(W, 2.0), many[0], 1.0).end.points).abs().max()) < 1e-9


def test_weights_that_jump_are_met_by_all_systems() -> None:
    other = ms.AttentionWeights(V=-torch.eye(2), B=torch.eye(2))
    flow = ms.SelfAttention(ms.Schedule.layers([W, other], t=2.0), 2.0)
    many = systems(3, 4)
    path = ms.solve(flow, many, 2.0)
    for s in range(3):
        alone = ms.solve(flow, many[s], 2.0)
        assert float((path.end.points[s] - alone.end.points).abs().max()) < 1e-8


def test_events_happen_and_stop_in_their_own_system() -> None:
    eye = ms.AttentionWeights(V=torch.eye(2), B=torch.eye(2))
    many = systems(5, 6, seed=3)

    def order(points, mass):
        return torch.linalg.vector_norm((mass[..., None] * points).sum(-2), dim=-1)

    flow = ms.SelfAttention(eye, [0.5, 1.0, 2.0, 4.0, 8.0])
    for batched in (False, True):
        event = ms.Event(order, level=0.95, stop=True, name="consensus", many=batched)
        seen = ms.Event(order, level=0.7, direction=1, name="half", many=batched)
        path = ms.solve(flow, many, 2.5, times=[0.0, 1.0, 2.5], events=[event, seen])
        for s in range(5):
            alone = ms.solve(flow.of_system(s), many[s], 2.5, events=[event, seen])
            assert float(path.end_times[s]) == pytest.approx(alone.end_time, abs=1e-8)
            assert float((path.end.points[s] - alone.end.points).abs().max()) < 1e-8
            times = [hit.time for hit in alone.events if hit.name == "half"]
            found = float(path.event_times("half")[s])
            assert found == pytest.approx(times[0], abs=1e-8) if times else math.isnan(found)
        stopped = path.end_times < 2.5
        assert 0 < int(stopped.sum()) < 5
        assert bool((path.points[-1][stopped] == path.end.points[stopped]).all())


def test_paths_of_ensembles_are_stored_with_an_axis_of_systems(tmp_path) -> None:
    path = ms.solve(ms.SelfAttention(W, [1.0, 2.0]), systems(2, 3), 1.0, [0.0, 0.4, 1.0])
    path.save(tmp_path / "many.zarr")
    again = ms.load(tmp_path / "many.zarr")
    assert bool((again.points == path.points).all()) and isinstance(again.end, Ensemble)
    assert isinstance(again[1], Ensemble) and again[1].shape == (2, 3, 2)
    data = again.to_xarray()
    assert data.points.dims == ("time", "system", "token", "axis") and data.mass.dims == ("system", "token")
    with pytest.raises(InvalidInput, match="not extended"):
        path.extend(2.0)


def test_progress_is_told_the_time_that_all_have_reached() -> None:
    seen: list[tuple[float, int]] = []
    ms.solve(ms.SelfAttention(W, [1.0, 8.0]), systems(2, 4), 1.0, progress=lambda t, n: seen.append((t, n)))
    assert seen[-1][0] == 1.0 and [t for t, _ in seen] == sorted(t for t, _ in seen)


def test_single_precision_is_a_decision() -> None:
    many = Ensemble(systems(2, 4).points, dtype=torch.float32)
    end = ms.solve(ms.SelfAttention(W, 1.0), many, 1.0, rtol=1e-5, atol=1e-6).end
    assert end.points.dtype == torch.float32
    exact = ms.solve(ms.SelfAttention(W, 1.0), Ensemble(many.points), 1.0).end
    assert float((end.points - exact.points).abs().max()) < 1e-4


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ms.solve(ms.SelfAttention(W, [1.0, 2.0]), systems(3, 2), 1.0), "beta has 2 numbers.* 3 systems"),
        (lambda: ms.solve(ms.SelfAttention(W, [1.0, 2.0]), systems(3, 2)[0], 1.0), "solve takes an Ensemble"),
        (lambda: ms.solve(ms.SelfAttention(W, 1.0), systems(3, 2, d=3), 1.0), "dimension 3"),
        (lambda: ms.solve(ms.SelfAttention(W, 1.0), systems(3, 2), 1.0, out="x.zarr"), "path.save"),
        (lambda: ms.solve(ms.SelfAttention(W, 1.0), systems(3, 2), 1.0, observers=[ms.Observer]), "class Observer"),
        (lambda: ms.solve(ms.Hardmax(W), systems(3, 2), 1.0), "adaptive"),
        (lambda: ms.SelfAttention(W, [1.0, -2.0]), "beta must be >= 0"),
        (lambda: ms.SelfAttention(W, []), "beta must be a number, or one"),
        (lambda: ms.SelfAttention(W, [1.0]).velocity(0.0, torch.eye(2), torch.ones(2)), "of_system"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(call, words) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        call()
    assert len(str(caught.value)) < 200 and "\n" not in str(caught.value)


def test_a_flow_of_ones_own_moves_every_system_by_its_own_drift() -> None:
    class Half(ms.SelfAttention):
        def drift(self, t, points, mass):
            return super().drift(t, points, mass).vector / 2

    many, flow = systems(2, 3), Half(W, 2.0)
    path = ms.solve(flow, many, 1.0)
    for s in range(2):
        assert float((path.end.points[s] - ms.solve(flow, many[s], 1.0).end.points).abs().max()) < 1e-8


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", [ms.SelfAttention, ms.UnnormalizedAttention])
def test_systems_on_a_gpu_move_as_on_the_cpu(kind):
    beta = torch.linspace(0.1, 4.0, 5, dtype=torch.float64)
    flow = kind(ms.AttentionWeights(V=np.eye(2), B=np.eye(2)), beta)
    many = ms.Ensemble(ms.sphere.uniform(40, 2, seed=3).view(5, 8, 2))
    there = ms.solve(flow, many.to(device="cuda"), 1.0).points.cpu()
    torch.testing.assert_close(there, ms.solve(flow, many, 1.0).points, rtol=0, atol=1e-12)
