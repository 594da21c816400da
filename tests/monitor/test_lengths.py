import numpy as np

from metastable.monitor.lengths import LengthTrend


def test_a_trend_in_centre_and_spread_is_taken_away() -> None:
    """Seed 0; 4000 texts: standard error of a mean of a third is 0.03, of a spread 0.02."""
    chance = np.random.default_rng(0)
    n = chance.integers(8, 400, 4000)
    u = np.log(n)
    values = (3 - u + 0.3 * u**2 + (0.2 + 0.3 * u) * chance.standard_normal(4000))[:, None]
    away = LengthTrend.fit(values, n)(values, n)[:, 0]
    for low, high in ((8, 60), (60, 180), (180, 400)):
        part = away[(n >= low) & (n < high)]
        assert abs(part.mean()) < 0.1
        assert abs(np.abs(part).mean() - 1.0) < 0.1


def test_one_length_is_no_trend() -> None:
    values = np.array([[1.0], [2.0], [3.0], [2.0]])
    away = LengthTrend.fit(values, np.full(4, 12))(values, np.full(4, 12))
    np.testing.assert_allclose(away[:, 0], [-2, 0, 2, 0], atol=1e-9)


def test_beyond_the_fitted_lengths_the_trend_stays_as_at_the_end() -> None:
    n = np.arange(10, 100)
    trend = LengthTrend.fit(np.log(n)[:, None], n)
    one, other = trend(np.array([[5.0], [5.0]]), np.array([99, 10**6]))
    assert one == other
