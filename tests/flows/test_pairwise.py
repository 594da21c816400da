import numpy as np
import torch

import metastable as ms
from metastable.flows.pairwise import pairwise

W = ms.AttentionWeights(V=[[1.0, 0.2], [0.0, 0.8]], B=[[1.0, 0.3], [-0.1, 0.7]])


def test_flows_become_arrays_of_heads_and_systems() -> None:
    heads = [ms.SelfAttention(W, [1.0, 2.0, 3.0]), ms.SelfAttention(W, 4.0)]
    found = pairwise(ms.MultiHead(heads, combine="mean"), 3)
    assert found is not None
    assert found.beta.tolist() == [[1.0, 2.0, 3.0], [4.0, 4.0, 4.0]]
    assert np.allclose(found.V[0], W.V.numpy() / 2) and np.allclose(found.B[1], W.B.numpy())
    assert found.normalised.all() and found.spherical
    other = pairwise(ms.UnnormalizedAttention(W, [1.0, 40.0]), 2)
    assert other is not None and not other.normalised.any()
    assert other.log_scale[0, 0] == 0.0 and other.log_scale[0, 1] == 40 * W.B_norm
    free = pairwise(ms.EuclideanAttention(W, 1.0), 2)
    assert free is not None and not free.spherical and free.B_norm.tolist() == [0.0]


def test_what_is_more_than_attention_with_constant_weights_is_not() -> None:
    class Mine(ms.SelfAttention):
        pass

    layered = ms.Schedule.layers([W, W], t=1.0)
    for flow in (
        Mine(W, 1.0),
        ms.SelfAttention(layered, 1.0),
        ms.SelfAttention(W, 1.0, field=torch.ones(2)),
        ms.ZeroTemperature(W),
        ms.MultiHead([ms.SelfAttention(W, 1.0), ms.ZeroTemperature(W)]),
    ):
        assert pairwise(flow, 2) is None
