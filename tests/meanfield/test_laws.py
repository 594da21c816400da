import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metastable import sphere
from metastable.errors import InvalidInput
from metastable.meanfield import (
    Harmonics,
    Mixture,
    Skewed,
    Symmetrized,
    Uniform,
    VonMisesFisher,
    nodes,
    reference_skew,
)

LAWS = [
    Uniform(3),
    VonMisesFisher([1.0, 2.0, -1.0], 3.0),
    Skewed([0.0, 1.0, 1.0], -0.7),
    Mixture([Uniform(3), VonMisesFisher([1.0, 0.0, 0.0], 5.0)], [1, 3]),
    Symmetrized(VonMisesFisher([0.0, 0.0, 1.0], 4.0)),
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
def test_densities_have_mass_one(law):
    points, weight = sphere.product_gauss(80)
    assert float(law(points) @ weight) == pytest.approx(1.0, abs=1e-12)


@settings(max_examples=20, deadline=None)
@given(kappa=st.floats(0.0, 500.0), d=st.integers(2, 3))
def test_von_mises_fisher_mean_is_the_bessel_ratio(kappa, d):
    from scipy.special import ive

    mean = torch.eye(d, dtype=torch.float64)[0]
    law = VonMisesFisher(mean, kappa)
    rho = nodes(law, d, 400 if d == 2 else 20000)
    assert float(rho.mass @ rho.points[:, 0]) == pytest.approx(ive(d / 2, kappa) / ive(d / 2 - 1, kappa), abs=1e-10)


@pytest.mark.parametrize("law", [*LAWS, reference_skew()], ids=lambda law: type(law).__name__)
def test_samples_follow_the_density(law):
    n = 4000
    x = law.sample(n, seed=3)
    exact = nodes(law, law.d, 5000)
    for i in range(law.d):
        moment = float(exact.mass @ exact.points[:, i])
        sigma = math.sqrt(float(exact.mass @ exact.points[:, i] ** 2) - moment**2) / math.sqrt(n)
        assert abs(float(x[:, i].mean()) - moment) < 4 * sigma


def test_symmetrized_law_has_no_mean_and_keeps_even_moments():
    law, part = reference_skew(), Symmetrized(reference_skew())
    a, b = nodes(law, 2, 64), nodes(part, 2, 64)
    assert float((b.mass @ b.points).abs().max()) < 1e-15
    assert float(a.mass @ (a.points[:, 0] * a.points[:, 1])) == pytest.approx(
        float(b.mass @ (b.points[:, 0] * b.points[:, 1])), abs=1e-15
    )


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Uniform(1), "d must be >= 2"),
        (lambda: VonMisesFisher([1.0, 0.0], -1.0), "kappa must be >= 0"),
        (lambda: VonMisesFisher([0.0, 0.0], 1.0), "mean must be a finite non-zero vector"),
        (lambda: Skewed([1.0, 0.0], 1.5), "strength must be >= -1 and <= 1"),
        (lambda: Harmonics(cosine=[2.0]), "a density >= 0"),
        (lambda: Mixture([Uniform(2), Uniform(3)]), "laws of one dimension"),
        (lambda: Mixture([Uniform(2)], [-1.0]), "weights must be 1 numbers >= 0"),
        (lambda: nodes(Uniform(3), 2, 10), "lives in d = 3 but"),
        (lambda: Uniform(None), "d must be an integer"),
        (lambda: VonMisesFisher("z", 1.0), "mean must be an array"),
        (lambda: VonMisesFisher([1.0, 0.0], [1.0]), "kappa must be a number"),
        (lambda: Harmonics(cosine="ab"), "cosine must be one row of numbers"),
        (lambda: Harmonics(d=3), "live on the circle"),
        (lambda: Mixture(Uniform(2)), "laws must be a sequence of laws"),
        (lambda: Mixture([]), "laws of one dimension"),
        (lambda: Symmetrized(None), "law must be a law"),
        (lambda: Uniform(2).sample(0), "n must be >= 1"),
        (lambda: Uniform(2).sample(3, seed="x"), "seed must be an integer"),
        (lambda: Uniform(2)(None), "points must"),
        (lambda: Skewed([1.0, 0.0], 0.5)([[1.0, 0.0, 0.0]]), r"points must have shape \(n, 2\)"),
        (lambda: nodes(VonMisesFisher([0.0, 0.6, 0.8], 5e3), 3, 400), "too narrow for them"),
    ],
)
def test_bad_laws_are_refused(make, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        make()


def test_parts_of_mixtures_are_flat_and_halves_are_symmetric():
    spike = VonMisesFisher([1.0, 0.0, 0.0], 1e4)
    law = Mixture([Uniform(3), Mixture([spike, Symmetrized(spike)], [1, 3]), Uniform(3)], [2, 2, 0])
    shares = [share for share, _ in law.parts()]
    assert shares == pytest.approx([0.5, 0.125, 0.1875, 0.1875])
    means = [part.mean[0].item() for _, part in law.parts()[1:]]
    assert means == [1.0, 1.0, -1.0]
