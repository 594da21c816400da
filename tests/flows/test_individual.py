import numpy as np
import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput
from metastable.flows.individual import IndividualAttention


def test_every_system_moves_as_if_it_were_alone():
    random = np.random.default_rng(3)
    V, B = random.standard_normal((4, 3, 3)), random.standard_normal((3, 3))
    flow = IndividualAttention(V, B, beta=2.0)
    many = ms.Ensemble(ms.sphere.uniform(40, 3, seed=1).view(4, 10, 3), mass=[1.0] * 8 + [0.0, 0.5])
    path = ms.solve(flow, many, t=1.0, rtol=1e-9, atol=1e-11)
    for s in range(4):
        one = ms.SelfAttention(ms.AttentionWeights(V=V[s], B=B), 2.0)
        alone = ms.solve(one, many[s], t=1.0, rtol=1e-9, atol=1e-11)
        assert torch.allclose(path.points[-1][s], alone.end.points, atol=1e-7)
        assert flow.of_system(s).weights.V.tolist() == V[s].tolist()


@pytest.mark.parametrize(
    "arguments",
    [
        (np.eye(2), np.eye(2), 1.0),
        (np.zeros((0, 2, 2)), np.eye(2), 1.0),
        (np.ones((3, 2, 2)), np.eye(3), 1.0),
        (np.ones((3, 2, 2)), np.eye(2), -1.0),
        (np.ones((3, 2, 2)), np.eye(2), [1.0, 2.0, 3.0]),
        (np.full((3, 2, 2), np.nan), np.eye(2), 1.0),
        (None, None, None),
    ],
)
def test_nonsense_is_refused(arguments):
    with pytest.raises(InvalidInput) as refused:
        IndividualAttention(*arguments)
    assert len(str(refused.value)) < 200


def test_one_measure_or_another_number_of_systems_is_refused():
    flow = IndividualAttention(np.stack([np.eye(2)] * 3), np.eye(2), 1.0)
    with pytest.raises(InvalidInput):
        ms.solve(flow, ms.sphere.equispaced(5), t=1.0)
    with pytest.raises(InvalidInput):
        ms.solve(flow, ms.Ensemble(np.ones((2, 3, 2))), t=1.0)
    with pytest.raises(InvalidInput):
        flow.of_system(3)
    with pytest.raises(InvalidInput):
        flow.drift(0.0, torch.eye(2).double(), torch.ones(2).double())
