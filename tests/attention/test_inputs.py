"""What a call is given, read once: shapes, precisions, devices, masses, and no copy where none is needed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from metastable.attention import attend
from metastable.attention.inputs import as_floating, read_beta, read_mass, read_operands, read_tokens
from metastable.errors import InvalidInput

X = torch.eye(3, dtype=torch.float64)


def test_precisions_meet_and_values_that_are_the_keys_stay_so():
    q, k, v = read_tokens(X.float(), X.float(), None)
    assert q.dtype == k.dtype == torch.float32 and v is k
    q, k, v = read_tokens(X.float(), X, X.float())
    assert q.dtype == k.dtype == v.dtype == torch.float64 and v is not k
    assert all(t.dtype == torch.float64 for t in read_tokens(X.half(), [[1, 2, 3]], None))


def test_no_copy_where_none_is_needed():
    array = np.eye(3)
    assert as_floating(array, "x").data_ptr() == array.ctypes.data
    assert as_floating(X, "x").data_ptr() == X.data_ptr()
    assert as_floating(array[::-1], "x").tolist() == array[::-1].tolist()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ((X, X[0], None), "must be matrices, got shapes"),
        ((X, X[:, :2], None), "one dimension"),
        ((X, X, X[:2]), "do not match"),
        ((X, X[:0], None), "at least one key"),
        ((X, X.to("meta"), None), "dense tensor with numbers"),
        (("x", X, None), "queries must be an array"),
    ],
)
def test_tokens_that_do_not_fit_are_refused(given, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        read_tokens(*given)


def test_tokens_that_are_not_finite_are_refused_and_lengths_are_known():
    for wrong in ((X * torch.inf, X, None), (X, X * torch.nan, None), (X, X, X * torch.nan)):
        with pytest.raises(InvalidInput, match="finite"):
            read_operands(*wrong, None, 1.0)
    read = read_operands(2 * X, X, None, None, 1.0)
    assert read.__dict__["squared_queries"] == (4.0, 4.0) and read.__dict__["squared_keys"] == (1.0, 1.0)
    fewer = read_operands(2 * X, 3 * X, None, [1.0, 0.0, 2.0], 1.0)
    assert fewer.keys.shape == (2, 3) and fewer.squared_keys == (9.0, 9.0) and fewer.mass.tolist() == [1.0, 2.0]


def test_batches():
    q, k, v = read_tokens(X[None], X[None], None, batched=True)
    assert q.shape == k.shape == (1, 3, 3) and v is k
    with pytest.raises(InvalidInput, match=r"batches \(b, n, d\)"):
        read_tokens(X, X, None, batched=True)
    with pytest.raises(InvalidInput, match="do not match"):
        read_tokens(X[None], X.expand(2, 3, 3), None, batched=True)


@pytest.mark.parametrize("mass", [[1.0, 2.0], [1.0, -1.0, 1.0], [0.0, 0.0, 0.0], [np.nan, 1.0, 1.0], "abc", 3.0])
def test_masses_that_are_none_are_refused(mass):
    with pytest.raises(InvalidInput, match="mass must"):
        read_mass(mass, X)


def test_masses_of_systems_are_positive_in_each():
    assert read_mass(None, X.expand(2, 3, 3)).tolist() == [[1 / 3] * 3] * 2
    with pytest.raises(InvalidInput, match="positive in total"):
        read_mass([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]], X.expand(2, 3, 3))
    assert read_mass(torch.ones(3), X).dtype == torch.float32


@pytest.mark.parametrize("beta", [None, "1", -1.0, np.inf, np.nan, [1.0], np.ones(1), 1j, 10**400, True])
def test_beta_is_one_number(beta):
    with pytest.raises(InvalidInput, match="beta must be finite and >= 0, got"):
        read_beta(beta)
    assert read_beta(np.float32(0.5)) == 0.5


def test_a_view_that_negates_is_read_as_what_it_shows():
    shown = torch.randn(20, 6, dtype=torch.complex128, generator=torch.Generator().manual_seed(0)).conj().imag
    assert shown.is_neg()
    for view in (shown, torch._neg_view(torch.randn(20, 6).double())):
        plain = view.resolve_neg().clone()
        assert torch.equal(attend(view, view, beta=2.0).mean, attend(plain, plain, beta=2.0).mean)
