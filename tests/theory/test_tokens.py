"""Single precision, and tokens of the wrong dimension, at every door of the room."""

import json

import numpy as np
import pytest
import torch

import metastable as ms
from metastable import theory as T
from metastable.errors import InvalidInput
from metastable.papers.concentration.families import sheared
from metastable.theory.rates import guaranteed_distance, guaranteed_tangent, rayleigh, squared_tangent
from metastable.theory.stability import jacobian, velocity_defect

w = sheared(0.5)
x = ms.sphere.equispaced(64)
single = ms.Measure(x, dtype=torch.float32)

DOORS = {
    "comoving_target": lambda p: T.comoving_target(w, p, [0.0, 1.0]),
    "log_jacobian": lambda p: T.log_jacobian(w, p, 0.7),
    "transported_density": lambda p: T.transported_density(w, lambda y: 1 + y[:, 0] ** 2, 0.3)(p),
    "local_rate": lambda p: T.local_rate(w, p),
    "rayleigh": lambda p: rayleigh(w, p),
    "squared_tangent": lambda p: squared_tangent(T.spectrum(w).M, p),
    "guaranteed_tangent": lambda p: guaranteed_tangent(w, p, 0.5),
    "guaranteed_distance": lambda p: guaranteed_distance(w, p, 0.5),
    "jacobian": lambda p: jacobian(w, p),
    "priori_bound": lambda p: T.priori_bound(w, 16.0, p)(0.5),
    "uniform_mean": lambda p: T.uniform_mean(w, p, 16.0),
    "attention_defect": lambda p: T.attention_defect(w, p, 16.0),
    "zero_temperature": lambda p: T.zero_temperature(w, p, 0.5),
    "clock": lambda p: T.clock(w, p, 0.5),
    "distance_to_limit": lambda p: T.distance_to_limit(w, p, 0.5),
    "coupling_to_limit": lambda p: T.coupling_to_limit(w, p, 0.5),
    "forecast": lambda p: T.forecast(w, 16.0, p).curve(0.5),
}


@pytest.mark.parametrize("name", DOORS)
def test_single_precision_is_computed_in_double(name):
    value, expected = DOORS[name](single), DOORS[name](ms.Measure(x))
    assert isinstance(value, float) or value.dtype == torch.float64
    assert np.allclose(value, expected, atol=1e-5)


@pytest.mark.parametrize("name", DOORS)
def test_another_dimension_is_one_sentence(name):
    for other in (ms.sphere.uniform(5, 3), ms.sphere.uniform(1, 3)):
        with pytest.raises(InvalidInput, match="points have dimension 3 but the weights have dimension 2"):
            DOORS[name](other)


def test_whole_forecast_of_single_precision():
    json.dumps(T.forecast(w, 16.0, single).to_dict([0.0, 1.0]), allow_nan=False)
    turn = ms.AttentionWeights(V=[[1.0, -1.0], [1.0, 1.0]], B=np.eye(2))
    assert T.comoving_target(turn, single, 1.0).dtype == torch.float64
    assert velocity_defect(w, 16.0, single.points, single.mass) == pytest.approx(
        velocity_defect(w, 16.0, x, ms.Measure(x).mass), rel=1e-5
    )


def test_unknown_metric():
    for distance in (T.distance_to_limit, T.coupling_to_limit):
        with pytest.raises(InvalidInput, match="metric must be one of chordal, geodesic, got 'chordl'"):
            distance(w, x, 1.0, metric="chordl")
