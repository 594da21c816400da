import numpy as np
import pytest

from metastable.papers.common_noise.two_point import KINDS, OVERLAPS, cases, fitted, step_change
from metastable.theory import TwoPointMotion
from small_claims import small_verdict


def test_the_fit_weighs_by_errors():
    predicted = np.array([1.0, 2.0, -1.0])
    factor, error = fitted(1.1 * predicted, np.array([0.1, 0.2, 0.1]), predicted)
    assert factor == pytest.approx(1.1) and error == pytest.approx(0.1 / np.sqrt(3))


@pytest.mark.parametrize(("activation", "d", "g"), [("linear", 3, 0.4), ("relu", 5, -0.6), ("constant", 4, 0.8)])
def test_the_second_order_of_a_step(activation, d, g):
    """200 000 antithetic steps of 0.05/kappa(1), seed 3: by 4 standard errors and the third order."""
    motion, h, n = TwoPointMotion(activation, d), 0.05, 200_000
    share = float(motion.covariance(g)) / motion.covariance.one
    random = np.random.default_rng(3)
    first, second = np.sqrt(h) * random.standard_normal((2, n, d))
    second = share * first + np.sqrt(1 - share**2) * second
    x, y = np.eye(d)[0], np.array([g, np.sqrt(1 - g**2)] + [0.0] * (d - 2))
    v, w = (noise - np.outer(noise @ at, at) for noise, at in ((first, x), (second, y)))
    length = np.sqrt((1 + (v**2).sum(1)) * (1 + (w**2).sum(1)))
    even = (g + (v * w).sum(1)) / length - g  # what is odd in the noise averages out
    order = h * float(motion.drift(g)) / motion.covariance.one + h**2 * step_change(motion, g)
    assert abs(even.mean() - order) < 4 * even.std() / np.sqrt(n) + (d * h) ** 3


def test_every_kind_at_every_overlap():
    motions, overlaps = cases()
    assert (
        len(motions) == len(overlaps) == len(KINDS) * len(OVERLAPS) == len(small_verdict("two-point-drift").table)
    )
