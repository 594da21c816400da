"""A flow from its record."""

import json

import pytest
import torch

import metastable as ms
from metastable.flows import Causal, CommonNoise
from metastable.solve.rebuild import rebuilt
from small_runs import low_rank_and_dense, random_weights


@pytest.mark.parametrize(
    "flow",
    [
        ms.SelfAttention(random_weights(1, 3), 0.1),
        ms.SelfAttention(random_weights(1, 3), 2.0, kernel="dense"),
        ms.SelfAttention(random_weights(1, 3), 2.0, field=[0.1, 0.2, 0.3]),
        ms.UnnormalizedAttention(random_weights(2, 2), 1.5, log_scale=0.5),
        ms.ZeroTemperature(random_weights(3, 4)),
        ms.Hardmax(random_weights(3, 4)),
        ms.flows.ReLUAttention(random_weights(3, 4)),
        ms.EuclideanAttention(random_weights(4, 2), 1.0),
        ms.MultiHead([ms.SelfAttention(random_weights(s, 3), s) for s in (1, 2)], "mean"),
        Causal(ms.UnnormalizedAttention(random_weights(2, 2), 1.5), 0.7, include_self=False),
        CommonNoise(ms.SelfAttention(random_weights(2, 2), 1.5), "tanh", scale=0.5, width=3),
        CommonNoise(ms.SelfAttention(random_weights(2, 2), 1.5), covariance=[0.5, 1.0], independent=True),
    ],
    ids=lambda flow: type(flow).__name__,
)
def test_what_a_record_holds_is_the_flow(flow):
    again = rebuilt(json.loads(json.dumps(flow.describe())))
    x = ms.sphere.uniform(7, flow.d, seed=1)
    mass = torch.full((7,), 1 / 7, dtype=torch.float64)
    assert torch.equal(again.velocity(0.0, x, mass), flow.velocity(0.0, x, mass))
    assert again.describe() == flow.describe()


@pytest.mark.parametrize(
    "flow",
    [
        ms.SelfAttention(low_rank_and_dense(1, 2, 4)[0], 1.0),
        ms.SelfAttention(random_weights(1, 17), 1.0),
        ms.SelfAttention(ms.Schedule.layers([random_weights(1, 2)], 1.0), 1.0),
    ],
)
def test_what_it_does_not_hold_is_not_invented(flow):
    assert rebuilt(flow.describe()) is None


@pytest.mark.parametrize("record", [{}, {"flow": "Unknown"}, {"flow": "SelfAttention", "weights": 3}, {"flow": []}])
def test_a_record_from_elsewhere_is_no_flow(record):
    assert rebuilt(record) is None
