"""An observable along a path."""

import torch

import metastable as ms
from metastable import observe


def test_along_a_path():
    w = ms.AttentionWeights(V=torch.eye(2), B=torch.eye(2))
    path = ms.solve(ms.SelfAttention(w, 1.0), ms.sphere.from_angles([0.0, 1.0, 2.0]), 5.0, times=6)
    order = observe.along(path, observe.order_parameter)
    assert (order.diff() > 0).all()
