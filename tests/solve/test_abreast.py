"""Many systems with noise at once: each is a run of its own kind, with a noise of its own."""

import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput
from metastable.flows import CommonNoise
from small_runs import random_weights


def test_systems_are_runs_with_different_noises():
    x = ms.sphere.uniform(4, 3, seed=1)
    many = ms.Ensemble(x.expand(3, 4, 3).contiguous())
    for activation in ("linear", "relu"):
        flow = CommonNoise(ms.SelfAttention(random_weights(1, 3), 2.0), activation, scale=0.5)
        path = ms.solve(flow, many, 0.5, times=6, step=0.05, seed=3)
        assert path.points.shape == (6, 3, 4, 3) and path.mass.shape == (3, 4)
        single = ms.solve(flow, x, 0.5, times=6, step=0.05, seed=3)
        assert torch.allclose(path.points[:, 0], single.points, atol=1e-12)  # the first has the noise of one alone
        assert float((path.end.points[0] - path.end.points[1]).abs().max()) > 0.05
        again = ms.solve(flow, many, 0.5, times=6, step=0.05, seed=3)
        assert torch.equal(path.points, again.points)
        fewer = ms.solve(flow, many[:2], 0.5, times=6, step=0.05, seed=3)
        assert torch.allclose(fewer.points, path.points[:, :2], atol=1e-14)


def test_masses_and_betas_of_their_own():
    x, mass = ms.sphere.uniform(8, 3, seed=1).view(2, 4, 3), torch.tensor([[1.0, 2, 3, 4], [4.0, 3, 2, 1]])
    many = ms.Ensemble(x, mass)
    attention = ms.SelfAttention(random_weights(2, 3), [1.0, 4.0])
    path = ms.solve(CommonNoise(attention, "relu", scale=0.0), many, 0.5, step=0.01, method="heun")
    for s in range(2):
        alone = ms.solve(attention.of_system(s), many[s], 0.5)
        assert float((path.end.points[s] - alone.end.points).abs().max()) < 1e-4
    assert torch.equal(path.end.mass, many.mass)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"out": "x.zarr"}, "not streamed to disk"),
        ({"events": [ms.Event(lambda x, m: x[0, 0], 0.0)]}, "no events"),
        ({"method": "dop853"}, "knows no noise"),
    ],
)
def test_what_such_a_run_cannot_do(options, words):
    many = ms.Ensemble(ms.sphere.uniform(6, 3, seed=1).view(2, 3, 3))
    with pytest.raises(InvalidInput, match=words):
        ms.solve(CommonNoise(activation="linear"), many, 0.5, step=0.1, **options)
