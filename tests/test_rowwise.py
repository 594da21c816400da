"""The fused passes agree with the plain expressions to rounding."""

import itertools
import math

import numpy as np
import pytest
import torch

from metastable import rowwise

N = 4096


def plain(function, *arguments, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(rowwise, "fusible", lambda *tensors: False)
        return function(*arguments)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("d", [2, 5])
def test_fused_equals_plain(d, dtype, monkeypatch):
    g = torch.Generator().manual_seed(d)
    x = torch.nn.functional.normalize(torch.randn(N, d, generator=g, dtype=dtype), dim=1)
    stages = torch.randn(4, N, d, generator=g, dtype=dtype)
    weights = torch.randn(4, generator=g, dtype=torch.float64)
    matrix = torch.randn(d, 3, generator=g, dtype=dtype)
    mass = torch.rand(N, generator=g, dtype=dtype) / N
    assert rowwise.fusible(x, stages)
    tolerance = 50 * torch.finfo(dtype).eps
    for function, arguments in (
        (rowwise.apply, (x, matrix)),
        (rowwise.normalize, (stages[0],)),
        (rowwise.inner, (x, stages[1])),
        (rowwise.project_tangent, (x, stages[1])),
        (rowwise.project_back, (x, *stages[1:])),
        (rowwise.project_applied, (x, stages[2, :, :2].contiguous(), matrix[:2, :1].expand(2, d).contiguous())),
        (rowwise.project_applied, (x, stages[2], None)),
        (rowwise.combine, (x, stages, weights, True)),
        (rowwise.combine, (x, stages, weights, False)),
    ):
        expected = plain(function, *arguments, monkeypatch=monkeypatch)
        assert (function(*arguments) - expected).abs().max() <= tolerance * expected.abs().max()
    for function, arguments in (
        (rowwise.largest_tangential, (x, stages, weights)),
        (rowwise.largest_damped, (x, stages, torch.stack([weights, 10 * weights.flip(0)]), 0.01)),
        (rowwise.mean_spread, (0.7 * x, mass)),
    ):
        expected = plain(function, *arguments, monkeypatch=monkeypatch)
        assert function(*arguments) == pytest.approx(expected, rel=100 * tolerance)


def test_a_value_that_is_not_finite_is_an_infinite_error(monkeypatch):
    x = torch.zeros(N, 2, dtype=torch.float64)
    x[:, 0] = 1.0
    stages = torch.ones(2, N, 2, dtype=torch.float64)
    stages[1, 7, 1] = math.nan
    weights = torch.ones(2, dtype=torch.float64)
    assert rowwise.largest_tangential(x, stages, weights) == math.inf
    assert plain(rowwise.largest_tangential, x, stages, weights, monkeypatch=monkeypatch) == math.inf
    both = torch.ones(2, 2, dtype=torch.float64)
    assert rowwise.largest_damped(x, stages, both, 0.01) == math.inf
    assert plain(rowwise.largest_damped, x, stages, both, 0.01, monkeypatch=monkeypatch) == math.inf


def test_no_error_is_none(monkeypatch):
    x, stages = torch.eye(2, dtype=torch.float64).repeat(N // 2, 1), torch.zeros(2, N, 2, dtype=torch.float64)
    both = torch.ones(2, 2, dtype=torch.float64)
    assert rowwise.largest_damped(x, stages, both, 0.01) == 0.0
    assert plain(rowwise.largest_damped, x, stages, both, 0.01, monkeypatch=monkeypatch) == 0.0


def side_by_side(arrays, gap, backwards):
    """Copies of the arrays in one piece of memory, so many numbers apart."""
    memory, copies, at = np.zeros(sum(a.size + gap for a in arrays)), [], 0
    for array in arrays[::-1] if backwards else arrays:
        copy = memory[at : at + array.size].reshape(array.shape)
        copy[...] = array
        copies.append(copy)
        at += array.size + gap
    return copies[::-1] if backwards else copies


@pytest.mark.parametrize("d", [2, 3, 5, 8])
def test_digits_depend_neither_on_where_memory_is_nor_on_who_has_which_rows(d):
    """A compiler may make three loops of one: of vectors, of what is left, and for arrays that might overlap."""
    n, rng = 700, np.random.default_rng(d)
    x, v, w, f = rng.normal(size=(4, n, d))
    stages, weights, matrix = rng.normal(size=(3, n * d)), rng.normal(size=3), rng.normal(size=(d, d))
    rows, like, flat = tuple(tuple(row) for row in matrix), np.zeros((n, d)), np.zeros(n * d)
    for kernel, before, arrays, after in (
        (rowwise._apply, (), [x.ravel(), flat], (rows,)),
        (rowwise._inner, (), [x, v, np.zeros(n)], ()),
        (rowwise._normalize, (), [x, like], ()),
        (rowwise._project_tangent, (), [x, v, like], ()),
        (rowwise._project_back, (), [x, v, w, f, like], ()),
        (rowwise._project_applied, (), [x.ravel(), v.ravel(), flat], (rows,)),
        (rowwise._combine, ((0,) * d,), [x.ravel(), stages, flat, np.zeros(n)], (weights, True)),
    ):

        def call(given, cuts, kernel=kernel, before=before, after=after):
            *read, out = given if kernel is not rowwise._combine else (*given[:2], given[2:])
            written = out if isinstance(out, list) else [out]
            for start, stop in itertools.pairwise((0, *cuts, n)):
                kernel(start, stop, *before, *read, *after, *written)
            return written

        expected = call([array.copy() for array in arrays], ())
        for cut in (1, 37, 511, 513, 699):
            found = call([array.copy() for array in arrays], (cut,))
            assert all(np.array_equal(*pair) for pair in zip(found, expected, strict=True)), (kernel, cut)
        for gap, backwards in itertools.product((0, 1, 8), (False, True)):
            found = call(side_by_side(arrays, gap, backwards), ())
            assert all(np.array_equal(*pair) for pair in zip(found, expected, strict=True)), (kernel, gap)
