import math

import numpy as np

from metastable.monitor.conformal import Conformal

CHANCE = np.random.default_rng(0)


def test_p_counts_the_scores_that_are_as_large() -> None:
    law = Conformal.of(np.arange(9.0))
    p = law.p(np.array([100.0, 7.5, -1.0]), CHANCE)
    np.testing.assert_allclose(p, [0.1, 0.2, 1.0])
    assert law.least == 0.1


def test_ties_are_broken_evenly() -> None:
    """All calibration scores are equal, so p is uniform on [0.1, 1]: mean 0.55, standard error 0.0026."""
    p = Conformal.of(np.zeros(9)).p(np.zeros(10_000), np.random.default_rng(1))
    assert abs(p.mean() - 0.55) < 0.011 and p.min() >= 0.1 and p.max() <= 1.0


def test_false_alarms_are_at_most_what_was_promised() -> None:
    """1000 calibrations of 99 scores, 20 new ones each: at 5% the standard error, of both, is 0.0010."""
    chance = np.random.default_rng(2)
    wrong = []
    for _ in range(1000):
        law = Conformal.of(chance.standard_cauchy(99))
        wrong.append(np.mean(law.p(chance.standard_cauchy(20), chance) <= 0.05))
    assert abs(np.mean(wrong) - 0.05) < 0.003


def test_surprise_is_the_logarithm_of_the_share_beyond_and_has_no_end() -> None:
    """Exponential scores: -log P(score > s) = s. At s = 4 among 20000 scores the error is that of the tail, 3%."""
    law = Conformal.of(np.random.default_rng(3).exponential(size=20_000))
    for s in (0.5, 1.0, 2.0, 4.0, 8.0):
        assert abs(float(law.surprise(np.array([s]))[0]) - s) < 0.08 * s + 0.02
    far = law.surprise(np.array([10.0, 100.0, 1e6]))
    assert far[0] < far[1] < far[2] < math.inf


def test_surprise_does_not_jump_at_the_threshold_and_never_falls() -> None:
    law = Conformal.of(np.random.default_rng(4).lognormal(size=500))
    grid = np.linspace(0, law.threshold * 2, 4000)
    rise = np.diff(law.surprise(grid))
    assert rise.min() >= -1e-12 and rise.max() < 0.35


def test_equal_scores_make_a_law() -> None:
    law = Conformal.of(np.ones(50))
    assert np.isfinite(law.surprise(np.array([0.0, 1.0, 2.0]))).all()
