"""Measures are validated once, here."""

import math

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput
from metastable.measure import Ensemble, Measure


def test_rows_and_masses_are_normalised():
    rho = ms.Measure(np.array([[3, 4], [0, -2]]), mass=[1, 3])
    assert rho.points.tolist() == [[0.6, 0.8], [0.0, -1.0]]
    assert rho.mass.tolist() == [0.25, 0.75]
    assert rho.total == 4.0
    assert rho.points.dtype == torch.float64
    assert (rho.n, rho.d, len(rho)) == (2, 2, 2)
    assert "masses" in repr(rho)
    assert ms.Measure([[1.0, 0.0]] * 4).mass.tolist() == [0.25] * 4


def test_a_copy_changes_nothing():
    x = ms.sphere.uniform(500, 3, seed=1)
    mass = torch.rand(500, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    rho = ms.Measure(x, mass)
    again = ms.Measure(rho.points, rho.mass)
    assert torch.equal(again.points, rho.points)
    assert torch.equal(again.mass, rho.mass)


def test_input_is_copied_and_single_precision_is_a_decision():
    array = np.array([[1.0, 0.0], [0.0, 1.0]])
    rho = ms.Measure(array)
    array[0] = np.nan
    assert torch.isfinite(rho.points).all()
    assert ms.Measure(np.float32([[1, 0]])).points.dtype == torch.float64
    assert ms.Measure([[1, 0]], dtype=torch.float32).points.dtype == torch.float32


def test_euclidean_tokens_are_left_alone():
    assert ms.Measure([[3.0, 4.0], [0.0, 0.0]], sphere=False).points.tolist() == [[3.0, 4.0], [0.0, 0.0]]


@pytest.mark.parametrize(
    ("points", "mass", "match"),
    [
        ([1.0, 2.0], None, r"shape \(n, d\), got shape \(2,\)"),
        (np.zeros((0, 2)), None, "at least one token"),
        ([[1.0], [2.0]], None, "d >= 2, got d = 1"),
        ([[1.0, 0.0], [np.inf, 0.0]], None, "row 1"),
        ([[1.0, 0.0], [0.0, 0.0]], None, "zero row 1"),
        ([[1.0, 0.0]], [1.0, 2.0], r"shape \(1,\) to match points, got shape \(2,\)"),
        ([[1.0, 0.0]], [-1.0], "mass must be >= 0, got -1.0 at index 0"),
        ([[1.0, 0.0]], [np.nan], "mass must be finite"),
        ([[1.0, 0.0]], [0.0], "positive in total"),
        ("points", None, "points must be an array of real numbers"),
        ([[1.0 + 1j, 0.0]], None, "points must be real"),
        (None, None, r"shape \(n, d\), got shape \(\)"),
    ],
)
def test_bad_input(points, mass, match):
    with pytest.raises(InvalidInput, match=match):
        ms.Measure(points, mass)


def test_huge_and_tiny_rows_and_masses_are_scaled_before_they_overflow():
    rho = ms.Measure([[1e200, 1e200], [1e-200, 1e-200]], mass=[1e308, 1e308])
    assert torch.allclose(rho.points, torch.full((2, 2), 0.5**0.5, dtype=torch.float64), atol=1e-15)
    assert rho.mass.tolist() == [0.5, 0.5]


def test_moving_keeps_the_total_and_tensors_are_copied():
    rho = ms.Measure([[1.0, 0.0], [0.0, 1.0]], mass=[1, 3])
    assert rho.to(dtype=torch.float32).total == 4.0
    V = torch.eye(2, dtype=torch.float64)
    w = ms.AttentionWeights(V=V, B=V)
    V *= 7
    assert w.V.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    x = ms.sphere.uniform(3, 2000, seed=1)
    assert torch.equal(ms.Measure(ms.Measure(x).points).points, ms.Measure(x).points)


def test_an_ensemble_holds_systems_of_one_size() -> None:
    many = Ensemble([[[3.0, 4.0], [0.0, 2.0]], [[1.0, 0.0], [0.0, -1.0]], [[2.0, 0.0], [0.0, 1.0]]], mass=[1, 3])
    assert many.shape == (3, 2, 2) and len(many) == many.b == 3 and (many.n, many.d) == (2, 2)
    assert many.points[0, 0].tolist() == [0.6, 0.8] and many.mass.tolist() == [[0.25, 0.75]] * 3
    assert isinstance(many[-1], Measure) and many[-1].points.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert len(many[1:]) == 2 and [rho.n for rho in many] == [2, 2, 2]
    assert repr(many) == "Ensemble(3 systems of 2 tokens on S^1, masses, torch.float64)"
    again = Ensemble(list(many))
    assert bool((again.points == many.points).all() and (again.mass == many.mass).all())
    each = Ensemble(many.points, mass=[[1.0, 1.0], [1.0, 3.0], [0.0, 2.0]], dtype=torch.float32)
    assert each.mass.tolist() == [[0.5, 0.5], [0.25, 0.75], [0.0, 1.0]] and each.points.dtype == torch.float32
    assert Ensemble(torch.rand(2, 3, 1), sphere=False).to(dtype=torch.float32).numpy()[0].shape == (2, 3, 1)


@pytest.mark.parametrize(
    ("points", "mass", "words"),
    [
        ([[[1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]], None, r"one number of tokens, got \[1, 2\]"),
        ([[1.0, 0.0]], None, r"shape \(b, n, d\)"),
        ([[[1.0, 0.0]], [[math.nan, 0.0]]], None, "row 0 of system 1"),
        ([[[1.0, 0.0]], [[0.0, 0.0]]], None, "zero row 0 of system 1"),
        (torch.ones(2, 3, 2), [[1, 1, 1], [1, -1, 1]], "-1.0 at index 1 of system 1"),
        (torch.ones(2, 3, 2), [[1, 1, 1], [0, 0, 0]], "only zeros in system 1"),
        (torch.ones(2, 3, 2), [1, 1], r"shape \(2, 3\) or \(3,\)"),
        (torch.ones(0, 3, 2), None, "0 systems"),
        (torch.ones(2, 3, 1), None, "d >= 2"),
        (None, None, "points"),
    ],
)
def test_an_ensemble_refuses_in_a_sentence_that_names_the_system(points, mass, words) -> None:
    with pytest.raises(InvalidInput, match=words):
        Ensemble(points, mass)


def test_an_index_out_of_an_ensemble_is_refused() -> None:
    many = Ensemble(torch.ones(2, 3, 2))
    for index in (2, -3, "a", None, slice(5, 6), slice("a")):
        with pytest.raises(InvalidInput):
            many[index]
