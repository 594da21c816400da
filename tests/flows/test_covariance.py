"""kappa(g) of activations against quadrature, their slopes, and what is no covariance."""

import math
from functools import partial

import mpmath
import numpy as np
import pytest
import torch

from metastable.errors import InvalidInput
from metastable.flows.covariance import ACTIVATIONS, HARMONICS, Covariance, as_covariance


def expectation(activation, g):
    """E[sigma(z_1) sigma(z_2)] by a product rule."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    weights = weights / weights.sum()
    first, second = np.meshgrid(nodes, nodes, indexing="ij")
    pair = (first, g * first + math.sqrt(1 - g * g) * second)
    one, two = (activation(torch.from_numpy(np.ascontiguousarray(z))).numpy() for z in pair)
    return float(weights @ (one * two) @ weights)


@pytest.mark.parametrize("name", [name for name in ACTIVATIONS if name != "relu"])
def test_kappa_is_the_expectation_over_two_normals(name):
    kappa = Covariance.of_activation(name)
    for g in (-1.0, -0.7, 0.0, 0.2, 0.9, 1.0):
        assert float(kappa(g)) == pytest.approx(expectation(kappa.activation, g), abs=1e-13)


def both_positive(angle, t):
    return mpmath.cos(t) * mpmath.cos(t - angle)


def test_relu_against_mpmath():
    """A kink: the product rule has no digits, an adaptive integral over polar angles has."""
    kappa = Covariance.of_activation("relu")
    for g in (-0.6, 0.3, 0.95):
        angle = math.acos(g)
        found = mpmath.quad(partial(both_positive, angle), [angle - mpmath.pi / 2, mpmath.pi / 2])
        assert float(kappa(g)) == pytest.approx(float(found / mpmath.pi), abs=1e-14)  # E[r^2] = 2


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_slope_is_the_mean_square_of_the_derivative(name):
    kappa = Covariance.of_activation(name)
    if name != "relu":
        nodes, weights = np.polynomial.hermite_e.hermegauss(250)
        z = torch.from_numpy(nodes).requires_grad_()
        value = kappa.activation(z).sum()
        (slope,) = torch.autograd.grad(value, z) if name != "constant" else (torch.zeros_like(z),)
        assert kappa.slope == pytest.approx(float(weights @ slope.numpy() ** 2 / weights.sum()), abs=1e-12)
    assert Covariance.of_function(kappa).slope == pytest.approx(kappa.slope, abs=2e-9)


def test_golden_values():
    tanh, relu = (Covariance.of_activation(name) for name in ("tanh", "relu"))
    assert (tanh.one, tanh.slope) == (pytest.approx(0.3943, abs=5e-5), pytest.approx(0.4644, abs=5e-5))
    assert relu.one == relu.slope == 0.5 and float(relu(-1.0)) == 0.0


def test_an_activation_of_one_s_own_and_polynomials():
    own, known = Covariance.of_activation(lambda z: torch.tanh(z)), Covariance.of_activation("tanh")
    grid = np.linspace(-1, 1, 11)
    assert np.abs(own(grid) - known(grid)).max() < 1e-14
    square = Covariance.of_activation(torch.square)
    assert np.abs(square(grid) - (1 + 2 * grid**2)).max() < 1e-12
    poly = as_covariance([0.5, 0.0, 2.0, 0.0])
    assert poly.coefficients == (0.5, 0.0, 2.0) and (poly.one, poly.slope) == (2.5, 4.0)
    assert as_covariance(poly) is poly


def test_positive_on_the_circle_and_not_on_the_sphere():
    """cos(2 angle) is a covariance on S^1; on S^2 its mean is negative."""
    kappa = Covariance.of_function(lambda g: 2 * g**2 - 1)
    with pytest.raises(InvalidInput, match=r"positive semidefinite on S\^2, got a coefficient .* of degree 0"):
        kappa.require_positive(3)
    for d in (2, 3, 5, 40):
        Covariance.of_function(Covariance.of_activation("relu").function).require_positive(d)
    assert HARMONICS > 8


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Covariance.of_function(lambda g: -g), "largest at g = 1"),
        (lambda: Covariance.of_function(lambda g: g - 0.6 * g**3), "largest at g = 1|semidefinite"),
        (lambda: Covariance.of_function(lambda g: np.exp(-np.arccos(g))), "slope at g = 1"),
        (lambda: Covariance.of_function(lambda g: g[:3]), "must have its shape"),
        (lambda: Covariance.of_function(lambda g: g / 0 if False else np.full_like(g, np.nan)), "finite"),
        (lambda: Covariance.of_function(lambda: 1), "function of an array"),
        (lambda: Covariance.of_activation(lambda z: z.abs()), "smooth"),
        (lambda: Covariance.of_activation(lambda z: 0 * z), "vanish"),
        (lambda: Covariance.of_activation("nonsense"), "unknown activation 'nonsense'; choose from constant"),
        (lambda: Covariance.of_activation(3), "must be a function"),
        (lambda: Covariance.polynomial([1.0, -0.1]), ">= 0"),
        (lambda: Covariance.polynomial([0.0, 0.0]), "not all zero"),
        (lambda: Covariance.of_activation("relu")(1.5), r"in \[-1, 1\]"),
    ],
)
def test_what_is_no_covariance(make, words):
    with pytest.raises(InvalidInput, match=words) as refused:
        make()
    assert len(str(refused.value)) < 200


def test_descriptions_tell_kappas_apart():
    named = [Covariance.of_activation(name).describe() for name in ACTIVATIONS]
    own = [Covariance.of_function(lambda g: g**2).describe(), Covariance.of_function(lambda g: g**4).describe()]
    every = [str(one) for one in (*named, *own, as_covariance([1.0, 2.0]).describe())]
    assert len(set(every)) == len(every)
