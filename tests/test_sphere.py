"""Geometry of the sphere, samples and nodes."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from metastable import sphere
from metastable.errors import InvalidInput


@given(seed=st.integers(0, 10**6), d=st.integers(2, 6))
def test_exp_and_log_are_inverse(seed, d):
    x, y = sphere.uniform(2, d, seed=seed)
    v = sphere.log(x[None], y[None])
    assert (sphere.exp(x[None], v) - y).abs().max() < 1e-10
    assert abs(float((v * x).sum())) < 1e-12
    assert float(v.norm()) == pytest.approx(float(sphere.geodesic_distance(x, y)), abs=1e-12)
    chord = float(sphere.chordal_distance(x, y))
    assert 2 * math.asin(min(1.0, chord / 2)) == pytest.approx(float(sphere.geodesic_distance(x, y)), abs=1e-7)


def test_geodesic_distance_keeps_its_digits_near_and_antipodal():
    x = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    for angle in (1e-9, math.pi - 1e-9):
        y = sphere.from_angles([angle])
        assert float(sphere.geodesic_distance(x, y)) == pytest.approx(angle, abs=1e-15 * 10, rel=1e-12)


def test_angles_invert_from_angles():
    theta = np.linspace(-3.1, 3.1, 17)
    assert np.abs(sphere.angles(sphere.from_angles(theta)).numpy() - theta).max() < 1e-14


@pytest.mark.parametrize("d", [2, 3, 5])
def test_uniform_moments(d):
    """E<x,e>^2 = 1/d; 4 standard errors, seed fixed."""
    n = 20000
    x = sphere.uniform(n, d, seed=11)
    second = (x**2).mean(0)
    error = math.sqrt(2 * (d - 1) / (d * d * (d + 2)) / n)
    assert (second - 1 / d).abs().max() < 4 * error
    assert x.mean(0).abs().max() < 4 / math.sqrt(d * n)
    assert torch.equal(x, sphere.uniform(n, d, seed=11))
    assert not torch.equal(x, sphere.uniform(n, d, seed=12))


@pytest.mark.parametrize("d", [2, 3, 6])
@pytest.mark.parametrize("kappa", [0.0, 0.5, 30.0, 1e4, 1e17])
def test_von_mises_fisher_overlap_law(d, kappa):
    """Kolmogorov-Smirnov against the numerically integrated density (1-u^2)^{(d-3)/2} e^{kappa u}."""
    mean = np.arange(1.0, d + 1)
    x = sphere.von_mises_fisher(4000, mean, kappa, seed=5)
    u = (x @ torch.from_numpy(mean / np.linalg.norm(mean))).numpy()
    if kappa > 1e15:
        assert u.min() > 1 - 1e-14
        return
    width = min(2.0, 60 / max(kappa, 1e-9))
    phi = np.linspace(0, math.acos(1 - width), 200001)  # u = cos(phi) removes the endpoint singularity of d = 2
    density = np.sin(phi) ** (d - 2) * np.exp(kappa * (np.cos(phi) - 1))
    cdf = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2)])
    test = stats.kstest(np.arccos(np.clip(u, -1, 1)), lambda q: np.interp(q, phi, cdf / cdf[-1]))
    assert test.pvalue > 1e-3


def test_fibonacci_and_equispaced_follow_their_formulas():
    x = sphere.equispaced(8)
    assert float(sphere.angles(x)[0]) == pytest.approx(2 * math.pi * 0.5 / 8)
    y = sphere.fibonacci(5)
    assert y[:, 2].tolist() == pytest.approx([0.8, 0.4, 0.0, -0.4, -0.8])
    assert (y.norm(dim=1) - 1).abs().max() < 1e-15


@pytest.mark.parametrize("d", [2, 3])
def test_product_gauss_is_exact_up_to_its_degree(d):
    points, mass = sphere.product_gauss(12, d)
    assert float(mass.sum()) == pytest.approx(1.0, abs=1e-14)
    direction = sphere.normalize(torch.arange(1.0, d + 1).double())
    for k in range(13):
        moment = 0.0 if k % 2 else special.poch(0.5, k // 2) / special.poch(d / 2, k // 2)
        assert float(mass @ (points @ direction) ** k) == pytest.approx(moment, abs=1e-14)
    k = 26  # far above the degree the rule must be wrong, or the test could not fail
    moment = special.poch(0.5, k // 2) / special.poch(d / 2, k // 2)
    assert abs(float(mass @ (points @ direction) ** k) - moment) > 1e-9


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: sphere.uniform(0, 3), "number of points must be >= 1, got 0"),
        (lambda: sphere.uniform(2.5, 3), "number of points must be an integer, got 2.5"),
        (lambda: sphere.uniform(2, 3, seed=2**70), "seed must be an integer below"),
        (lambda: sphere.uniform(3, 1), "d >= 2, got d = 1"),
        (lambda: sphere.von_mises_fisher(3, [0.0, 0.0], 1.0), "non-zero"),
        (lambda: sphere.von_mises_fisher(3, [1.0, 0.0], -1.0), "kappa must be >= 0 and <= 1e[+]300, got -1.0"),
        (lambda: sphere.von_mises_fisher(3, [[1.0, 0.0]], 1.0), "one vector"),
        (lambda: sphere.product_gauss(-1), "degree must be >= 0"),
        (lambda: sphere.product_gauss(3, 4), "got d = 4"),
    ],
)
def test_bad_input(call, match):
    with pytest.raises(InvalidInput, match=match):
        call()


def sentence(call):
    """What the call is refused with; nothing if it is not."""
    try:
        call()
    except InvalidInput as error:
        return str(error)
    return ""


NONSENSE = (None, "3", b"", [], [[]], {}, [[1.0], [1.0, 2.0]], 1j, math.nan, 10**400, -1, 0, 2**63, object(), int)


@pytest.mark.parametrize("wrong", NONSENSE, ids=lambda value: type(value).__name__)
def test_whatever_is_given_no_foreign_exception_comes_out(wrong):
    x = sphere.uniform(3, 2)
    for call in (
        lambda: sphere.normalize(wrong),
        lambda: sphere.project_tangent(x, wrong),
        lambda: sphere.project_tangent(wrong, x),
        lambda: sphere.exp(x, wrong),
        lambda: sphere.log(wrong, x),
        lambda: sphere.chordal_distance(x, wrong),
        lambda: sphere.geodesic_distance(wrong, wrong),
        lambda: sphere.from_angles(wrong),
        lambda: sphere.angles(wrong),
        lambda: sphere.uniform(wrong, 2),
        lambda: sphere.uniform(2, wrong),
        lambda: sphere.uniform(2, 2, seed=wrong),
        lambda: sphere.von_mises_fisher(2, wrong, 1.0),
        lambda: sphere.von_mises_fisher(2, [1.0, 0.0], wrong),
        lambda: sphere.equispaced(wrong),
        lambda: sphere.fibonacci(wrong),
        lambda: sphere.product_gauss(wrong),
        lambda: sphere.product_gauss(2, wrong),
    ):
        said = sentence(call)
        assert len(said) < 200 and "\n" not in said


def test_lists_and_arrays_are_rows_as_well():
    assert sphere.normalize([[3.0, 4.0]]).tolist() == [[0.6, 0.8]]
    assert sphere.chordal_distance([[1.0, 0.0]], np.array([[0.0, 1.0]])).tolist() == [2**0.5]
    assert sphere.normalize(torch.ones(1, 2)).dtype == torch.float32  # as it was given
