"""The front door: closed forms, every exact solver against every other, and sentences for bad input."""

import math

import numpy as np
import pytest
from hypothesis import given, settings

from fuzz.transport import CASES
from metastable import sphere
from metastable.errors import InvalidInput
from metastable.measure import Measure
from metastable.transport import wasserstein
from transport.clouds import METRIC, P, cloud, clouds


def test_uniform_circle_against_two_poles() -> None:
    """R6: chordal sqrt(2 - 4/pi), geodesic pi/sqrt(12)."""
    rho = Measure(sphere.equispaced(100_000))
    poles = [[1.0, 0.0], [-1.0, 0.0]]
    assert wasserstein(rho, poles) == pytest.approx(math.sqrt(2 - 4 / math.pi), abs=1e-7)
    assert wasserstein(rho, poles, metric="geodesic") == pytest.approx(math.pi / math.sqrt(12), abs=1e-7)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"metric": "euclid"}, "unknown metric 'euclid'; choose from chordal, geodesic"),
        ({"method": "magic"}, "unknown method 'magic'; choose from auto, atoms"),
        ({"max_pairs": -1}, "max_pairs must be >= 0, got -1"),
        ({"projections": 1}, "projections must be >= 2, got 1"),
        ({"regularisation": [0.1]}, "regularisation must be a number"),
        ({"seed": None}, "seed must be an integer, got None"),
        ({"p": 0.5}, "p must be >= 1 and <= 10, got 0.5"),
    ],
)
def test_unknown_names_are_refused(arguments: dict, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        wasserstein([[1.0, 0.0]], [[0.0, 1.0]], **arguments)


@settings(max_examples=150, deadline=None)
@given(clouds(), METRIC, P)
def test_auto_is_the_linear_program(pair: tuple[Measure, Measure], metric: str, p: int) -> None:
    a, b = pair
    found = wasserstein(a, b, p, metric)
    reference = wasserstein(a, b, p, metric, method="exact")
    assert found.exact and found.error == 0
    # W^p is accurate to rounding; its root amplifies that near zero.
    assert found**p == pytest.approx(reference**p, abs=1e-12 * 4**p, rel=1e-10)


@settings(max_examples=60, deadline=None)
@given(clouds(), METRIC)
def test_symmetric_and_chordal_below_geodesic(pair: tuple[Measure, Measure], metric: str) -> None:
    a, b = pair
    assert wasserstein(a, b, metric=metric) ** 2 == pytest.approx(wasserstein(b, a, metric=metric) ** 2, abs=1e-12)
    assert wasserstein(a, b) <= wasserstein(a, b, metric="geodesic") + 1e-7
    assert wasserstein(a, b, p=1, metric=metric) <= wasserstein(a, b, p=2, metric=metric) + 1e-7


@settings(max_examples=30, deadline=None)
@given(clouds(), METRIC)
def test_distance_to_itself_vanishes(pair: tuple[Measure, Measure], metric: str) -> None:
    a, _ = pair
    shuffled = np.random.default_rng(0).permutation(a.n)
    again = Measure(a.points[shuffled], a.mass[shuffled])
    assert wasserstein(a, again, metric=metric) ** 2 < 1e-13


@pytest.mark.parametrize("d", [2, 3, 6])
def test_rotation_invariance(d: int) -> None:
    a, b = cloud(40, d, "uniform", True, 1), cloud(30, d, "cluster", True, 2)
    q, _ = np.linalg.qr(np.random.default_rng(3).standard_normal((d, d)))
    turned = wasserstein(Measure(a.points.numpy() @ q, a.mass), Measure(b.points.numpy() @ q, b.mass))
    assert turned == pytest.approx(wasserstein(a, b), abs=1e-12)


@pytest.mark.parametrize("case", sorted(CASES))
def test_fuzz(case: str) -> None:
    """Thousands of seeds of the same run in `make fuzz`."""
    wrong = {seed: sentence for seed in range(30) if (sentence := CASES[case](seed))}
    assert not wrong


@pytest.mark.parametrize("size", [1e-300, 1e-5, 1e150, 1e307])
def test_euclidean_tokens_of_any_size(size: float) -> None:
    """No power of a distance overflows."""
    rng = np.random.default_rng(0)
    for d in (1, 2, 3):
        x, y = rng.standard_normal((20, d)), rng.standard_normal((30, d))
        one = wasserstein(Measure(x, sphere=False), Measure(y, sphere=False))
        other = wasserstein(Measure(size * x, sphere=False), Measure(size * y, sphere=False))
        assert other.exact and other == pytest.approx(size * one, rel=1e-12)
