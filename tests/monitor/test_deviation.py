import numpy as np
from scipy.special import ndtri

from metastable.monitor.deviation import KNOTS, TAIL, Deviation


def sample(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three features: one grows with length, one is skewed, one follows the other two."""
    chance = np.random.default_rng(seed)
    n = chance.integers(10, 200, count)
    a, b = chance.standard_normal(count), chance.exponential(size=count)
    return np.stack([np.log(n) + 0.1 * a, b, a + 0.2 * b + 0.3 * chance.standard_normal(count)], axis=1), n


def test_texts_of_the_same_kind_have_the_deviation_of_three_normal_numbers() -> None:
    features, n = sample(2000, 0)
    deviation = Deviation.fit(features, n)
    values, shares = deviation(*sample(2000, 1))
    assert abs(values.mean() - 3) < 0.35
    np.testing.assert_allclose(shares.sum(axis=1), values, rtol=1e-4)
    long = n > 100
    assert abs(values[long].mean() - values[~long].mean()) < 0.5


def test_a_broken_relation_is_seen_and_named() -> None:
    features, n = sample(2000, 0)
    deviation = Deviation.fit(features, n)
    strange = features[:50].copy()
    strange[:, 2] = -strange[:, 2]
    usual, _ = deviation(features[50:100], n[50:100])
    values, _ = deviation(strange, n[:50])
    assert np.median(values) > 4 * np.median(usual)


def test_far_away_is_further_than_near() -> None:
    features, n = sample(500, 0)
    deviation = Deviation.fit(features, n)
    row = features[:1].repeat(3, axis=0)
    row[:, 1] += [0.0, 20.0, 2000.0]
    values, shares = deviation(row, n[:1].repeat(3))
    assert values[0] < values[1] < values[2]
    assert shares[2].argmax() == 1


def test_a_feature_that_never_changes_is_no_matter() -> None:
    features, n = sample(300, 0)
    features[:, 0] = 1.0
    values, _ = Deviation.fit(features, n)(features, n)
    assert np.isfinite(values).all()


def test_the_deviation_is_that_of_the_definition() -> None:
    """Interpolated between the knots by numpy, straight on beyond them, then Mahalanobis in double precision."""
    deviation = Deviation.fit(*sample(400, 0))
    features, n = sample(60, 2)
    features[:5] *= 30.0
    away = deviation.trend(features, n)
    levels = ndtri(np.linspace(*TAIL, KNOTS))
    normal = np.empty_like(away)
    for f, knots in enumerate(deviation.knots.T):
        width = (knots[-1] - knots[0]) / (levels[-1] - levels[0])
        beyond = np.maximum(away[:, f] - knots[-1], 0) - np.maximum(knots[0] - away[:, f], 0)
        normal[:, f] = np.interp(away[:, f], knots, levels) + beyond / width
    np.testing.assert_allclose(deviation.normal(features, n), normal, rtol=1e-9, atol=1e-9)
    z = normal - deviation.gaussian.mean.double().numpy()
    whiten = deviation.gaussian.whiten.double().numpy()
    values, shares = deviation(features, n)
    np.testing.assert_allclose(values, ((z @ whiten) ** 2).sum(axis=1), rtol=1e-9)
    np.testing.assert_allclose(shares, (z @ whiten @ whiten.T) * z, rtol=1e-9, atol=1e-12)


def test_what_is_no_number_stays_none() -> None:
    deviation = Deviation.fit(*sample(300, 0))
    features, n = sample(4, 2)
    features[1, 0], features[2, 1] = np.nan, np.inf
    values, _ = deviation(features, n)
    assert np.isfinite(values).tolist() == [True, False, False, True]
