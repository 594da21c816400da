"""The gradient of a run: the exact derivative of what was computed, against torch, differences and closed forms."""

import math

import numpy as np
import pytest
import torch
from scipy.special import ive

import metastable as ms
from dense_runs import attended, normal, relative, run, step_times
from metastable.attention import adjoint
from metastable.errors import InvalidInput, MetastableError, SolveError
from metastable.solve import Gradient, gradient
from metastable.solve.methods import METHODS
from metastable.solve.runge_kutta import runge_kutta
from metastable.solve.small_system import MOST_TOKENS


def weights(d, seed=0):
    return normal(d, d, seed=seed, scale=d**-0.5), torch.eye(d).double() + normal(d, d, seed=seed + 1, scale=0.5)


def of(kind, **options):
    return lambda V, B, beta: kind(ms.AttentionWeights(V=V, B=B), beta, **options)


FLOWS = {
    "softmax": (of(ms.SelfAttention), {}),
    "field": (
        of(ms.SelfAttention, field=[0.3, -0.2, 0.5]),
        {"field": torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64)},
    ),
    "unnormalised": (of(ms.UnnormalizedAttention, log_scale=0.3), {"log_scale": 0.3}),
    "causal": (lambda *w: ms.Causal(of(ms.SelfAttention)(*w), alibi=2.0), {"alibi": 2.0}),
    "causal without itself": (
        lambda *w: ms.Causal(of(ms.UnnormalizedAttention)(*w), alibi=1.0, include_self=False),
        {"alibi": 1.0, "include_self": False, "log_scale": 0.0},
    ),
    "euclidean": (of(ms.EuclideanAttention), {}),
}


def masses(n, seed=2):
    return ms.Measure(torch.eye(n), mass=torch.rand(n, generator=torch.Generator().manual_seed(seed)) + 0.2).mass


def linear(n, d):
    """A loss that is neither even nor symmetric, with a curvature."""
    c = normal(n, d, seed=11)
    return lambda x: (c * x).sum() + (x[0] @ x[-1]) ** 2


@pytest.mark.parametrize("method", ["dop853", "adaptive", "rk4", "euler"])
@pytest.mark.parametrize("name", FLOWS)
def test_it_is_what_torch_finds_through_the_same_steps_done_densely(name, method):
    make, options = FLOWS[name]
    n, d, beta, t = 9, 3, 1.7, 1.2
    V, B = weights(d, seed=3)
    points, mass = ms.sphere.uniform(n, d, seed=5), masses(n)
    how = {"step": 0.1} if method in ("rk4", "euler") else {"rtol": 1e-5, "atol": 1e-7, "max_step": 9.0}
    flow, loss = make(V, B, beta), linear(n, d)
    rho = ms.Measure(points, mass=mass, sphere=flow.spherical)
    found = gradient(flow, rho, t, loss, method=method, **how)
    times, table = step_times(flow, rho, t, method=method, **how), runge_kutta(METHODS[method]())
    leaves = [V.clone(), B.clone(), torch.tensor(beta, dtype=torch.float64), points.clone()]
    v, b, s, x = (leaf.requires_grad_() for leaf in leaves)
    end = run(lambda _, y: attended(y, mass, b, s, **options) @ v.T, x, times, table, spherical=flow.spherical)
    value = loss(end)
    expected = list(torch.autograd.grad(value, (v, b, s, x)))
    if flow.spherical:
        expected[3] = expected[3] - (expected[3] * points).sum(1, keepdim=True) * points
    assert math.isclose(found.value, float(value.detach()), rel_tol=1e-13)
    for mine, theirs in zip((found.V, found.B, found.beta, found.points), expected, strict=True):
        assert relative(mine, theirs) < 1e-12
    assert found.steps == len(times)


@pytest.mark.parametrize(
    ("method", "n", "d", "beta", "t"),
    [("dop853", 2, 2, 3.0, 0.4), ("dop853", 6, 2, 20.0, 0.4), ("dop853", 17, 3, 1.0, 0.4),
     ("dop853", 12, 12, 2.0, 0.2), ("adaptive", 5, 2, 3.0, 0.1)],
)  # fmt: skip
@pytest.mark.parametrize("kind", [ms.SelfAttention, ms.UnnormalizedAttention])
def test_central_differences_of_whole_runs(kind, method, n, d, beta, t):
    """Differences of order 4 of runs that choose their own steps, at tolerances far below what is compared."""
    if kind is ms.UnnormalizedAttention:
        beta = min(beta, 2.0)
    V, B = weights(d, seed=n)
    points, loss = ms.sphere.uniform(n, d, seed=7), linear(n, d)
    how = {"method": method, "rtol": 1e-12 if method == "dop853" else 1e-11, "atol": 1e-14}

    def value(V, B, beta, x):
        return loss(ms.solve(of(kind)(V, B, beta), x, t, **how).end.points)

    found = gradient(of(kind)(V, B, beta), points, t, loss, **how)
    turn = normal(n, d, seed=9)
    turn = turn - (turn * points).sum(1, keepdim=True) * points
    to_V, to_B = normal(d, d, seed=20), normal(d, d, seed=21)

    def moved(s):
        x = points + s * turn
        return x / x.norm(dim=1, keepdim=True)

    along = {
        "V": (lambda s: value(V + s * to_V, B, beta, points), (found.V * to_V).sum()),
        "B": (lambda s: value(V, B + s * to_B, beta, points), (found.B * to_B).sum()),
        "beta": (lambda s: value(V, B, beta + s, points), found.beta),
        "points": (lambda s: value(V, B, beta, moved(s)), (found.points * turn).sum()),
    }
    h = 2e-4
    for name, (at, slope) in along.items():
        difference = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)
        scale = max(abs(float(difference)), 1e-2)
        assert abs(float(slope) - float(difference)) < 1e-7 * scale, name


def test_layers_of_a_schedule_have_a_derivative_each():
    n, d, t = 8, 3, 1.5
    heads = [weights(d, seed=k) for k in range(3)]
    points, loss, mass = ms.sphere.uniform(n, d, seed=1), linear(n, d), torch.full((n,), 1 / n).double()
    layers = ms.Schedule.layers([ms.AttentionWeights(V=V, B=B) for V, B in heads], t)
    flow = ms.SelfAttention(layers, 2.0)
    found = gradient(flow, points, t, loss, rtol=1e-6, max_step=0.3)
    times, table = step_times(flow, points, t, rtol=1e-6, max_step=0.3), runge_kutta(METHODS["dop853"]())
    V = torch.stack([V for V, _ in heads]).requires_grad_()
    B = torch.stack([B for _, B in heads]).requires_grad_()
    beta, x = torch.tensor(2.0).double().requires_grad_(), points
    for layer in range(3):
        mine = [(a, b) for a, b in times if layer * 0.5 <= (a + b) / 2 < layer * 0.5 + 0.5]
        x = run(lambda _, y, k=layer: attended(y, mass, B[k], beta) @ V[k].T, x, mine, table)
    expected = torch.autograd.grad(loss(x), (V, B, beta))
    assert found.V.shape == (3, d, d)
    for mine, theirs in zip((found.V, found.B, found.beta), expected, strict=True):
        assert relative(mine, theirs) < 1e-12


def test_a_smooth_schedule_has_the_derivative_by_what_is_added_throughout():
    n, d, t = 6, 2, 1.0
    V, B = weights(d)
    points, loss, mass = ms.sphere.uniform(n, d, seed=1), linear(n, d), torch.full((n,), 1 / n).double()
    flow = ms.SelfAttention(ms.Schedule(lambda s: ms.AttentionWeights(V=V * (1 + s * s), B=B)), 2.0)
    found = gradient(flow, points, t, loss, max_step=0.3)
    more = torch.zeros(d, d).double().requires_grad_()
    times, table = step_times(flow, points, t, max_step=0.3), runge_kutta(METHODS["dop853"]())
    end = run(lambda s, y: attended(y, mass, B, 2.0) @ (V * (1 + s * s) + more).T, points, times, table)
    (expected,) = torch.autograd.grad(loss(end), more)
    assert found.V.shape == (1, d, d) and relative(found.V[0], expected) < 1e-12


def test_heads_have_a_derivative_each():
    n, d, t = 7, 3, 1.0
    heads, betas = [weights(d, seed=k) for k in (0, 5)], (1.0, 3.0)
    points, loss, mass = ms.sphere.uniform(n, d, seed=1), linear(n, d), torch.full((n,), 1 / n).double()
    flow = ms.MultiHead(
        [
            of(ms.SelfAttention)(*heads[0], betas[0]),
            ms.Causal(of(ms.SelfAttention)(*heads[1], betas[1]), alibi=1.0),
        ],
        combine="mean",
    )
    found = gradient(flow, points, t, loss, max_step=0.3)
    times, table = step_times(flow, points, t, max_step=0.3), runge_kutta(METHODS["dop853"]())
    V, B = (torch.stack([h[k] for h in heads]).requires_grad_() for k in range(2))
    beta = torch.tensor(betas, dtype=torch.float64, requires_grad=True)

    def drift(_, y):
        first, second = attended(y, mass, B[0], beta[0]), attended(y, mass, B[1], beta[1], alibi=1.0)
        return (first @ V[0].T + second @ V[1].T) / 2

    expected = torch.autograd.grad(loss(run(drift, points, times, table)), (V, B, beta))
    for mine, theirs in zip((found.V, found.B, found.beta), expected, strict=True):
        assert mine.shape == theirs.shape and relative(mine, theirs) < 1e-12


def test_the_adjoint_is_the_transpose_of_the_tangent_flow():
    """<w, J v> from forward-mode differentiation through the same steps, <J^T w, v> from the adjoint."""
    n, d, t = 6, 3, 0.6
    V, B = weights(d, seed=8)
    points, mass, w = ms.sphere.uniform(n, d, seed=2), torch.full((n,), 1 / n).double(), normal(n, d, seed=4)
    flow = of(ms.SelfAttention)(V, B, 5.0)
    times, table = step_times(flow, points, t, max_step=0.3), runge_kutta(METHODS["dop853"]())
    v = normal(n, d, seed=5)
    v = v - (v * points).sum(1, keepdim=True) * points
    to_V, to_B = normal(d, d, seed=6), normal(d, d, seed=7)

    def end(x, V, B):
        return run(lambda _, y: attended(y, mass, B, 5.0) @ V.T, x, times, table)

    _, tangent = torch.func.jvp(end, (points, V, B), (v, to_V, to_B))
    found = gradient(flow, points, t, lambda x: (w * x).sum(), max_step=0.3)
    back = (found.points * v).sum() + (found.V * to_V).sum() + (found.B * to_B).sum()
    assert math.isclose(float((w * tangent).sum()), float(back), rel_tol=1e-12)


@pytest.mark.parametrize(("beta", "t"), [(2.0, 1.0), (1.0, 0.7), (4.0, 3.0), (0.5, 1.5), (20.0, 2.0)])
def test_the_closed_form_of_the_circle(beta, t):
    """X4: d theta(T)/d eps of V = I + eps D with equispaced tokens, which rest at eps = 0.

    Error control alone would take one step, and the derivative would be wrong by up to 1e-5.
    """
    n = 256
    angles = torch.arange(n, dtype=torch.float64) * (2 * math.pi / n)
    points = torch.stack([torch.cos(angles), torch.sin(angles)], 1)
    flow = ms.SelfAttention(ms.AttentionWeights(V=torch.eye(2), B=torch.eye(2)), beta)
    A, sigma = ive(1, beta) / ive(0, beta), 4 * ive(2, beta) / (beta * ive(0, beta))
    for token in (0, 31, 77):
        normal_to = torch.stack([-points[token, 1], points[token, 0]])
        found = gradient(flow, points, t, lambda x, k=token, e=normal_to: x[k] @ e, rtol=1e-9, atol=1e-11)
        theta = float(angles[token])
        stretch = -A * math.sin(2 * theta) * math.expm1(sigma * t) / sigma
        assert abs(float(found.V[0, 0] - found.V[1, 1]) - stretch) < 1e-9
        assert abs(float(found.V[1, 0] - found.V[0, 1]) - A * t) < 1e-9
        assert abs(float(found.V.trace())) < 1e-9


def test_golden_values_of_the_circle():
    beta, A = 2.0, ive(1, 2.0) / ive(0, 2.0)
    sigma = 4 * ive(2, beta) / (beta * ive(0, beta))
    assert round(A * math.expm1(sigma) / sigma, 6) == 0.958432 and round(A, 6) == 0.697775


@pytest.mark.parametrize(
    ("n", "d", "beta", "method"), [(40, 2, 6.0, "auto"), (20, 3, 1.0, "auto"), (30, 2, 3.0, "adaptive")]
)
@pytest.mark.parametrize("rtol", [1e-6, 1e-8])
def test_with_a_longest_step_the_run_is_that_of_solve_digit_by_digit(n, d, beta, method, rtol):
    V, B = weights(d)
    points, flow = ms.sphere.uniform(n, d, seed=1), of(ms.SelfAttention)(V, B, beta)
    how = {"method": method, "rtol": rtol, "max_step": 9.0}
    path, found = ms.solve(flow, points, 2.0, **how), gradient(flow, points, 2.0, lambda x: x.sum(), **how)
    assert bool((found.end.points == path.end.points).all()) and found.value == float(path.end.points.sum())


def test_on_the_circle_it_is_that_of_all_pairs_to_the_tolerance_of_the_run():
    n, (V, B) = MOST_TOKENS + 88, weights(2, seed=5)
    w = ms.AttentionWeights(V=V, B=B)
    x, mass, c = ms.sphere.uniform(n, 2, seed=4), masses(n), linear(n, 2)
    given = {"rtol": 1e-7, "atol": 1e-7, "max_step": 0.1}
    found, expected = (
        gradient(ms.MultiHead(heads), ms.Measure(x, mass), 0.2, c, **given)
        for k in ("auto", "fused")
        for heads in [[ms.SelfAttention(w, 6.0, kernel=k), ms.UnnormalizedAttention(w, 1.0, kernel=k)]]
    )
    assert found.steps == expected.steps
    for part in ("V", "B", "beta", "points"):
        exact = getattr(expected, part)
        assert float((getattr(found, part) - exact).abs().max()) < 1e-8 * float(exact.abs().max())


OBLIQUE = [[1.2, 0.4, -0.3], [0.1, 0.8, 0.3], [0.5, -0.2, 1.0]]
"""A B on S^2 whose queries are of different lengths."""


def on_s2(kind, kernel="auto"):
    """Flows on S^2 whose attention may be differentiated by a grid, by name."""
    draw = ms.AttentionWeights(V=weights(3, seed=5)[0], B=OBLIQUE)
    turned = ms.AttentionWeights(V=weights(3, seed=6)[0], B=[[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    return {
        "softmax": lambda: ms.SelfAttention(draw, 8.0, kernel=kernel),
        "turned": lambda: ms.SelfAttention(turned, 20.0, kernel=kernel),
        "unnormalised": lambda: ms.UnnormalizedAttention(draw, 2.0, kernel=kernel),
        "two heads": lambda: ms.MultiHead([ms.SelfAttention(w, 4.0, kernel=kernel) for w in (draw, turned)]),
        "scheduled": lambda: ms.SelfAttention(ms.Schedule.layers([draw, turned], 0.2), 6.0, kernel=kernel),
    }[kind]()


@pytest.mark.parametrize("way", ["sphere_adjoint", "nearby_adjoint"])
@pytest.mark.parametrize("kind", ["softmax", "turned", "unnormalised", "two heads", "scheduled"])
def test_on_s2_it_is_that_of_all_pairs_to_the_tolerance_of_the_run(monkeypatch, kind, way):
    taken, found_by = [], getattr(adjoint, way)
    monkeypatch.setattr(adjoint, "FEWEST", {3: 500})
    monkeypatch.setattr(adjoint, "_LEAST_GRID", (0.0, 0.0))
    monkeypatch.setattr(adjoint, "laid_cost", lambda _: 0.0 if way == "sphere_adjoint" else math.inf)
    monkeypatch.setattr(adjoint, "adjoint_cost", lambda *_: math.inf)
    monkeypatch.setattr(adjoint, way, lambda *given: taken.append(1) or found_by(*given))
    n = MOST_TOKENS + 38
    x, mass, c = ms.sphere.uniform(n, 3, seed=4), masses(n), linear(n, 3)
    given = {"method": "rk4", "step": 0.1, "rtol": 1e-7, "atol": 1e-7}
    found, expected = (gradient(on_s2(kind, k), ms.Measure(x, mass), 0.2, c, **given) for k in ("auto", "fused"))
    assert taken
    for part in ("V", "B", "beta", "points"):
        exact = torch.as_tensor(getattr(expected, part))
        assert float((torch.as_tensor(getattr(found, part)) - exact).abs().max()) < 1e-10 * float(exact.abs().max())


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "kernel"), [("softmax", "sphere_grid"), ("turned", "sphere_grid")])
def test_on_s2_it_is_the_slope_of_runs_by_the_grid(kind, kernel):
    """Central differences of whole runs, of which attention is computed to 1e-11."""
    n = 3600
    x, mass, c = ms.sphere.uniform(n, 3, seed=4), masses(n), linear(n, 3)
    flow, given = on_s2(kind, kernel), {"method": "rk4", "step": 0.1, "rtol": 1e-9, "atol": 1e-9}
    found = gradient(flow, ms.Measure(x, mass), 0.2, c, **given)
    step = 1e-4

    def loss(V, B, beta):
        moved = ms.SelfAttention(ms.AttentionWeights(V=V, B=B), beta, kernel=kernel)
        return float(c(ms.solve(moved, ms.Measure(x, mass), 0.2, **given).end.points))

    V, B, beta = flow.weights.V, flow.weights.B, flow.beta
    change = torch.zeros(3, 3).double()
    change[1, 2] = step
    slopes = {
        "V": (loss(V + change, B, beta) - loss(V - change, B, beta)) / (2 * step),
        "B": (loss(V, B + change, beta) - loss(V, B - change, beta)) / (2 * step),
    }
    for part, slope in slopes.items():
        exact = getattr(found, part)
        assert abs(float(exact[1, 2]) - slope) < 1e-7 * float(exact.abs().max())
    slope = (loss(V, B, beta + step) - loss(V, B, beta - step)) / (2 * step)
    assert abs(found.beta - slope) < 1e-7 * abs(found.beta)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("d", [2, 3, 12])
def test_on_a_gpu_it_is_that_of_the_cpu(d):
    V, B = weights(d, seed=7)
    w, x, c = ms.AttentionWeights(V=V, B=B), ms.sphere.uniform(400, d, seed=4), normal(400, d, seed=11)
    flow = ms.MultiHead([ms.SelfAttention(w, 3.0), ms.UnnormalizedAttention(w, 1.0)])
    given = {"rtol": 1e-9, "atol": 1e-9, "max_step": 0.05}
    expected = gradient(flow, x, 0.3, lambda y: (c.to(y) * y).sum(), **given)
    found = gradient(flow, x.cuda(), 0.3, lambda y: (c.to(y) * y).sum(), **given)
    assert found.points.is_cuda and found.steps == expected.steps
    for part in ("V", "B", "beta", "points"):
        exact = torch.as_tensor(getattr(expected, part))
        assert float((getattr(found, part).cpu() - exact).abs().max()) < 1e-7 * float(exact.abs().max())


def test_many_steps_are_made_again_from_few_states():
    """Fixed steps by the hundred: the same derivative as by keeping them all, with states as the root of them."""
    n, d, beta = 5, 2, 2.0
    V, B = weights(d)
    points, loss, mass = ms.sphere.uniform(n, d, seed=1), linear(n, d), torch.full((n,), 1 / n).double()
    flow = of(ms.SelfAttention)(V, B, beta)
    found = gradient(flow, points, 3.0, loss, method="rk4", step=0.02)
    assert found.steps == 150
    v = V.clone().requires_grad_()
    times, table = step_times(flow, points, 3.0, method="rk4", step=0.02), runge_kutta(METHODS["rk4"]())
    end = run(lambda _, y: attended(y, mass, B, beta) @ v.T, points, times, table)
    (expected,) = torch.autograd.grad(loss(end), v)
    assert relative(found.V, expected) < 1e-11


def test_the_layer_of_a_trained_encoder_is_differentiated_as_it_steps():
    """A residual flow: Euler adds F itself, not its projection."""
    n, d = 6, 4
    V, B = weights(d)
    points, loss, mass = ms.sphere.uniform(n, d, seed=1), linear(n, d), torch.full((n,), 1 / n).double()
    flow = ms.MultiHead([of(ms.SelfAttention)(V, B, 2.0)], residual=True)
    found = gradient(flow, points, 3.0, loss, method="euler", step=1.0)
    x, v = points.clone().requires_grad_(), V.clone().requires_grad_()
    y = x
    for _ in range(3):
        y = y + attended(y, mass, B, 2.0) @ v.T
        y = y / y.norm(dim=1, keepdim=True)
    of_v, of_x = torch.autograd.grad(loss(y), (v, x))
    of_x = of_x - (of_x * points).sum(1, keepdim=True) * points
    assert relative(found.V, of_v) < 1e-13 and relative(found.points, of_x) < 1e-13


def test_a_flow_of_one_s_own_has_the_derivative_by_its_tokens():
    class Gather(ms.Flow):
        d = 2

        def drift(self, t, points, mass):
            return (mass @ points).expand_as(points)

    points = ms.sphere.uniform(5, 2, seed=1)
    found = gradient(Gather(), points, 1.0, linear(5, 2), rtol=1e-12)
    same = ms.SelfAttention(ms.AttentionWeights(V=torch.eye(2), B=torch.eye(2)), 0.0)
    expected = gradient(same, points, 1.0, linear(5, 2), rtol=1e-12)
    assert found.V is None and found.B is None and found.beta is None
    assert relative(found.points, expected.points) < 1e-9


def test_zero_temperature_is_integrated_where_solve_knows_the_solution():
    w = ms.AttentionWeights(V=[[2.0, 0.0], [0.0, 1.0]], B=torch.eye(2))
    points, loss = ms.sphere.uniform(3, 2, seed=1), linear(3, 2)
    found = gradient(ms.ZeroTemperature(w), points, 1.0, loss, rtol=1e-12, atol=1e-13)
    x = points.clone().requires_grad_()
    y = x * torch.tensor([math.exp(2.0), math.e], dtype=torch.float64)
    (expected,) = torch.autograd.grad(loss(y / y.norm(dim=1, keepdim=True)), x)
    assert relative(found.points, expected) < 1e-10


def test_no_time_is_the_loss_itself():
    points = ms.sphere.uniform(4, 3, seed=1)
    found = gradient(of(ms.SelfAttention)(*weights(3), 1.0), points, 0.0, lambda x: x[0, 0])
    assert found.value == float(points[0, 0]) and found.steps == 0 and float(found.V.abs().max()) == 0.0
    assert abs(float((found.points * points).sum(1).abs().max())) < 1e-15


def test_progress_tells_the_way_there_and_back():
    told = []
    points = ms.sphere.uniform(4, 2, seed=1)
    found = gradient(
        of(ms.SelfAttention)(*weights(2), 1.0), points, 1.0, lambda x: x[0, 0], progress=lambda t, k: told.append(t)
    )
    assert len(told) == 2 * found.steps and max(told) == 1.0 and told[-1] == 0.0
    assert told[found.steps :] == sorted(told[found.steps :], reverse=True)


def test_it_says_what_it_is_in_one_line():
    points = ms.sphere.uniform(4, 2, seed=1)
    found = gradient(of(ms.SelfAttention)(*weights(2), 1.0), points, 0.1, lambda x: x[0, 0])
    assert isinstance(found, Gradient) and "\n" not in repr(found) and len(repr(found)) < 200


def test_what_cannot_be_differentiated_is_refused_in_a_sentence():
    points = ms.sphere.uniform(4, 2, seed=1)
    w = ms.AttentionWeights(V=torch.eye(2), B=torch.eye(2))
    flow = ms.SelfAttention(w, 1.0)
    good = {"flow": flow, "rho0": points, "t": 1.0, "loss": lambda x: x.sum()}
    for wrong in (
        {"flow": None}, {"flow": ms.Hardmax(w)}, {"flow": ms.SelfAttention(w, [1.0, 2.0])}, {"rho0": [[1.0] * 3]},
        {"rho0": ms.Ensemble(np.ones((2, 3, 2)))}, {"t": -1.0}, {"t": math.nan}, {"loss": 3}, {"loss": lambda x: x},
        {"method": "exact"}, {"method": "switching"}, {"method": "fast"}, {"method": 3}, {"rtol": -1}, {"atol": ""},
        {"step": 0.1, "method": "dop853"}, {"max_steps": 0}, {"t0": 2.0}, {"progress": "yes"}, {"max_step": "a"},
    ):  # fmt: skip
        with pytest.raises(MetastableError) as caught:
            gradient(**(good | wrong))
        assert len(str(caught.value)) < 200 and "\n" not in str(caught.value), wrong
    with pytest.raises(SolveError, match="max_steps"):
        gradient(**good, max_steps=1, max_step=1e-3)
    with pytest.raises(InvalidInput, match="loss"):
        gradient(**(good | {"loss": lambda x: 1.0}))
