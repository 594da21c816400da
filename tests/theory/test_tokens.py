"""Single precision, tokens of the wrong dimension and nonsense, at every door of the room."""

import json
import math

import numpy as np
import pytest
import torch

import metastable as ms
from metastable import theory as T
from metastable.errors import InvalidInput, MetastableError
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
        with pytest.raises(InvalidInput, match="unknown metric 'chordl'; choose from chordal, geodesic"):
            distance(w, x, 1.0, metric="chordl")


W, X = ms.AttentionWeights(V=np.diag([2.0, 1.0]), B=np.eye(2)), ms.sphere.equispaced(8)
TURNING = ms.AttentionWeights(V=[[1.0, -1.0], [1.0, 1.0]], B=np.eye(2))
PATH = ms.solve(ms.SelfAttention(W, beta=4.0), X, t=0.2, times=[0.0, 0.2])
CLUSTER = T.Cluster(1.0, 2.0, 4.0, 1.0, beta=10.0)
CALLS = {
    T.uniform_distance: (3, 1, 1.0),
    T.log_jacobian: (W, X, 1.0),
    T.transported_density: (W, lambda x: x[:, 0], 1.0),
    T.planar_travel_time: ((1.0, 2.0), (2.0, 1.0), 1.0, 0.5),
    T.equiangular.speed: (0.1, 5, 1.0, True),
    T.equiangular.overlap_at_zero_beta: (1.0, 5),
    T.equiangular.travel_time: (0.5, 5, 1.0, 0.1, True),
    T.equiangular.overlap: (1.0, 5, 1.0, 0.1, True),
    T.equiangular.late_rate: (1.0, True),
    T.growth_rate: (2, 1.0, 2, True),
    T.fastest_mode: (1.0, 2),
    T.clustering_time: (10, 1.0, 2, 1.0),
    T.rates: (W,),
    T.local_rate: (W, X),
    T.rayleigh: (W, X),
    T.squared_tangent: (T.spectrum(W).M, X),
    T.guaranteed_tangent: (W, X, 1.0),
    T.guaranteed_distance: (W, X, 1.0),
    T.rotation_period: (TURNING,),
    T.Cluster: (1.0, 2.0, 4.0, 1.0, 10.0, 1.0, 1),
    CLUSTER.solve: ([0.0, 1.0], 0.1),
    CLUSTER.exit_time: (0.1, 0.5),
    CLUSTER.crude_exit_time: (0.1, 0.5),
    CLUSTER.sampled_offset: (10,),
    T.limit_map: (W, 1e-6),
    T.limit_map(W): (X,),
    T.limit: (W, X, 1e-6),
    T.comoving_target: (W, X, 1.0, 1e-6),
    T.LimitMap: (T.spectrum(W),),
    T.zero_temperature: (W, X, 1.0),
    T.clock: (W, X, 1.0),
    T.bessel_ratio: (2, 1.0),
    T.bessel_ratio_expansion: (2, 1.0),
    T.uniform_mean: (W, X, 1.0),
    T.smooth_mean: (X, torch.ones(8, dtype=torch.float64), X),
    T.density_bound: (2, 1.0, 2.0),
    T.cap_bound: (1.0, lambda h: h),
    T.uniform_cap: (2, 0.5),
    T.log_partition_uniform: (2, 1.0),
    T.sampling_error: (2, 1.0, 10),
    T.effective_tokens: (10, 1.0, 2),
    T.attention_defect: (W, X, 1.0, 100, 0),
    T.jacobian: (W, X),
    T.growth_constant: (W, 16, 1, 0),
    T.velocity_defect: (W, 1.0, X, None),
    T.posteriori_bound: (W, 4.0, PATH, 1.0),
    T.priori_bound: (W, 4.0, X, 1.0, 0),
    T.optimal_time: (10.0, 1.0, 1.0),
    T.synchronous_distance: (X, X),
}
NONSENSE = (
    None, "3", b"", "", [], [[]], {}, [1, [2]], 1j, math.nan, math.inf, -math.inf, 10**400, -1, 0, 2**63, 5e-324,
    1e308, True, object(), int, np.zeros((0, 2)), np.array([1.0, 2.0]), np.array(1.5), torch.zeros(2, 3),
    torch.ones(2, dtype=torch.complex64), np.full((2, 2), np.nan), ms.sphere.uniform(3, 3),
    ms.Measure([[1.0]], sphere=False), lambda: 1,
)  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", CALLS, ids=lambda call: getattr(call, "__qualname__", type(call).__name__))
def test_malformed_calls_end_in_one_sentence(call):
    """Every argument in turn replaced by nonsense: an answer, or metastable's own exception in a line."""
    good = CALLS[call]
    call(*good)
    sentences = []
    for place in range(len(good)):
        for bad in NONSENSE:
            try:
                call(*good[:place], bad, *good[place + 1 :])
            except MetastableError as error:
                sentences.append(str(error))
    assert sentences and all("\n" not in text and len(text) < 200 for text in sentences)
