"""The field before and after the projection, and the check of what a flow returns."""

import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput
from metastable.flows.drift import Drift, Velocity, checked
from small_runs import identity


def test_the_factors_of_a_drift_multiply_to_it():
    values, matrix = torch.randn(40, 2).double(), torch.randn(2, 3).double()
    assert torch.allclose(Drift(values, matrix=matrix).vector, values @ matrix, atol=1e-15)
    assert Drift(values).vector is values


@pytest.mark.parametrize(("given", "rate"), [(None, 0.0), (2, 2.0), (lambda: 3.0, 3.0)])
def test_a_rate_is_a_number_a_function_or_unknown(given, rate):
    assert Drift(torch.ones(1, 2), given).rate == Velocity(torch.ones(1, 2), given).rate == rate


def test_a_drift_that_fits_passes_as_it_is():
    points = ms.sphere.uniform(5, 3)
    drift = Drift(points[:, :1].contiguous(), matrix=torch.ones(1, 3).double())
    flow = ms.Hardmax(identity(3))
    assert checked(drift, points, flow) is drift
    assert checked(points, points, flow).values is points
    with pytest.raises(InvalidInput, match="the drift of Hardmax must be a tensor or a Drift, got int"):
        checked(3, points, flow)


def test_parts_that_are_no_plain_tensors_are_told():
    points, flow = ms.sphere.uniform(5, 3), ms.Hardmax(identity(3))
    for wrong, said in (
        (Drift(points.numpy()), "must consist of tensors, got ndarray"),
        (Drift(None), "must consist of tensors, got NoneType"),
        (Drift(points, matrix=[[1.0]]), "must consist of tensors, got list"),
        (points.clone().requires_grad_(), "must not require gradients; compute it under torch.no_grad"),
    ):
        with pytest.raises(InvalidInput, match=f"the drift of Hardmax {said}"):
            checked(wrong, points, flow)
