"""Flows with common noise: their drift, runs, records and refusals."""

import math

import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput, NoEnergy
from metastable.flows import CommonNoise
from metastable.flows.gaussian_field import Features, Gram, Independent, RandomLayer
from small_runs import identity, random_weights


def test_without_noise_it_is_the_flow():
    flow = ms.SelfAttention(random_weights(1, 3), 2.0)
    rho = ms.Measure(ms.sphere.uniform(6, 3, seed=1))
    noisy = CommonNoise(flow, "relu", scale=0.0)
    assert torch.equal(noisy.velocity(0.0, *rho_of(rho)), flow.velocity(0.0, *rho_of(rho)))
    exact = ms.solve(flow, rho, 1.0, rtol=1e-11, atol=1e-12).end.points
    errors = [
        float((ms.solve(noisy, rho, 1.0, step=h, method=m, seed=1).end.points - exact).abs().max())
        for m in ("euler-maruyama", "heun")
        for h in (0.04, 0.02)
    ]
    assert errors[0] / errors[1] == pytest.approx(2.0, abs=0.2)
    assert errors[2] / errors[3] == pytest.approx(4.0, abs=0.5)


def rho_of(rho):
    return rho.points, rho.mass


def test_without_drift_it_takes_every_dimension():
    flow = CommonNoise(activation="linear")
    for d in (2, 5):
        path = ms.solve(flow, ms.sphere.uniform(3, d), 0.1, step=0.05, seed=2)
        assert path.end.d == d
        assert float((path.end.points.norm(dim=1) - 1).abs().max()) < 1e-14
    with pytest.raises(InvalidInput, match="dimension 4 but the flow's weights have dimension 3"):
        ms.solve(CommonNoise(ms.SelfAttention(identity(3), 1.0), "relu"), ms.sphere.uniform(3, 4), 0.1)
    with pytest.raises(NoEnergy):
        flow.energy(*rho_of(ms.Measure(ms.sphere.uniform(3, 2))))
    drift = ms.SelfAttention(identity(3), 1.0)
    rho = ms.Measure(ms.sphere.uniform(3, 3))
    assert CommonNoise(drift, "relu").energy(*rho_of(rho)) == drift.energy(*rho_of(rho))


def test_fields():
    assert isinstance(CommonNoise(activation="linear").field(3), Features)
    assert isinstance(CommonNoise(activation="relu").field(3), Gram)
    assert isinstance(CommonNoise(activation="relu", width=8).field(3), RandomLayer)
    assert isinstance(CommonNoise(activation="relu", independent=True).field(3), Independent)
    methods = {
        CommonNoise(activation="linear"): "heun",
        CommonNoise(activation="relu"): "euler-maruyama",
        CommonNoise(activation="relu", width=8): "layers",
    }
    for flow, method in methods.items():
        path = ms.solve(flow, ms.sphere.uniform(2, 3), 0.1, step=0.1)
        assert path.provenance["parameters"]["method"] == method and path.provenance["seed"] == 0


def test_the_mean_of_a_token_decays_like_heat():
    """E x_t = e^{-s^2 (d-1) kappa(1) t/2} x_0; 4 standard errors, and the bias of the step."""
    d, t, many, scale = 4, 0.5, 8000, 0.8
    x = torch.zeros(many, 1, d, dtype=torch.float64)
    x[:, :, 0] = 1
    for activation, one in (("relu", 0.5), ("linear", 1.0)):
        flow = CommonNoise(activation=activation, scale=scale)
        ends = [ms.solve(flow, ms.Ensemble(x), t, step=h, seed=3).end.points[:, 0, 0] for h in (0.05, 0.025)]
        extrapolated = 2 * ends[1] - ends[0]
        error = float(extrapolated.std()) / math.sqrt(many)
        expected = math.exp(-(scale**2) * (d - 1) * one * t / 2)
        assert abs(float(extrapolated.mean()) - expected) < 4 * error + 0.003


def test_all_tokens_feel_one_noise_and_earlier_ones_not_the_later():
    x = ms.sphere.uniform(6, 3, seed=1)
    for activation in ("linear", "relu"):
        flow = CommonNoise(activation=activation)
        whole, part = (ms.solve(flow, x[:n], 0.5, step=0.05, seed=4).end.points for n in (6, 3))
        assert torch.equal(whole[:3], part)
    twins = torch.cat([x[:1], x[:1]])
    end = ms.solve(CommonNoise(activation="relu"), twins, 1.0, step=0.01, seed=1).end.points
    assert torch.allclose(end[0], end[1], atol=1e-6)
    end = ms.solve(CommonNoise(activation="relu", independent=True), twins, 1.0, step=0.01, seed=1).end.points
    assert float((end[0] - end[1]).norm()) > 0.1


def test_a_schedule_in_the_drift_cuts_steps():
    w = [random_weights(s, 2) for s in (1, 2)]
    flow = ms.SelfAttention(ms.Schedule.layers(w, 0.26), 1.0)
    x = ms.sphere.uniform(4, 2, seed=1)
    path = ms.solve(CommonNoise(flow, "linear", scale=0.0), x, 0.26, step=0.01, method="heun")
    exact = ms.solve(flow, x, 0.26, rtol=1e-10).end.points
    assert float((path.end.points - exact).abs().max()) < 1e-3


def test_single_precision():
    x = ms.sphere.uniform(5, 3, seed=1)
    for activation in ("linear", "relu"):
        one, other = (
            ms.solve(CommonNoise(activation=activation), x, 0.5, step=0.05, seed=1, dtype=dtype).end.points
            for dtype in (torch.float32, torch.float64)
        )
        assert one.dtype == torch.float32 and torch.allclose(one.double(), other, atol=1e-4)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: CommonNoise(), "either an activation= or a covariance="),
        (lambda: CommonNoise(activation="relu", covariance=[1.0]), "one of them and not both"),
        (lambda: CommonNoise("relu"), "flow must be a Flow"),
        (lambda: CommonNoise(activation="relu", scale=-1.0), "scale must be >= 0"),
        (lambda: CommonNoise(activation="relu", width=0), "width must be >= 1"),
        (lambda: CommonNoise(covariance=[1.0], width=3), "finite width has an activation"),
        (lambda: CommonNoise(CommonNoise(activation="relu"), "relu"), "has a noise already"),
        (lambda: CommonNoise(ms.EuclideanAttention(identity(2), 1.0), "relu"), "does not live on the sphere"),
        (lambda: CommonNoise(ms.SelfAttention(identity(3), 1.0), covariance=lambda g: 2 * g**2 - 1), r"on S\^2"),
        (lambda: ms.MultiHead([CommonNoise(ms.SelfAttention(identity(3), 1.0), "relu")]), "noise"),
        (lambda: ms.solve(CommonNoise(activation="relu"), [[1.0, 0.0]], 1.0, method="dop853"), "knows no noise"),
        (lambda: ms.solve(CommonNoise(activation="relu"), [[1.0, 0.0]], 1.0, seed="a"), "seed must be an integer"),
    ],
)
def test_refusals(make, words):
    with pytest.raises(InvalidInput, match=words) as refused:
        make()
    assert len(str(refused.value)) < 200


def test_a_covariance_that_is_none_in_this_dimension_is_refused_by_the_run():
    flow = CommonNoise(covariance=lambda g: 2 * g**2 - 1)
    ms.solve(flow, ms.sphere.uniform(3, 2), 0.1, step=0.1)
    with pytest.raises(InvalidInput, match=r"positive semidefinite on S\^2"):
        ms.solve(flow, ms.sphere.uniform(3, 3), 0.1, step=0.1)
