"""The closed U against its golden values, mpmath, the matrix exponential of the recursion, and its shape."""

import math

import mpmath
import numpy as np
import pytest
import torch
from scipy import linalg, special

from metastable import theory
from metastable.errors import InvalidInput

DOUBLE_WELL = [
    (1.0, 0.2, 3.0),
    (-27.519314453632965, 0.2, 0.25),
    (-1.5515192155322617, 0.5, 0.25),
    (3.9262326774050965e-06, 3.0, 2.0),
]
"""(weight, beta, lambda) of the published figure, at t = 1.5."""


def log_profile(s, t, beta, alibi, width, modes):
    """log S_t(s) from its power series in 40 digits."""
    with mpmath.workdps(40):
        s, t, beta, alibi, width = map(mpmath.mpf, (s, t, beta, alibi, width))
        places = mpmath.log(1 / s) if alibi == 0 else mpmath.log(mpmath.expm1(alibi) / mpmath.expm1(alibi * s))
        share = 1 if alibi == 0 else alibi * mpmath.exp(alibi * s) / mpmath.expm1(alibi)
        total = mpmath.mpf(0)
        for n in range(1, modes + 1):
            c = n**2 * mpmath.besseli(n, beta) * t
            weight = mpmath.exp(-((mpmath.pi * n / width) ** 2) / 2)
            total += weight * share * c * mpmath.hyp0f1(2, c * places)
        return float(mpmath.log(total))


def turns(values):
    """Places at which a sequence changes between rising and falling."""
    rising = np.sign(np.diff(values))
    return np.flatnonzero(rising[1:] != rising[:-1]) + 1


def test_golden_depths():
    """K1."""
    assert [round(theory.critical_depth(beta), 8) for beta in (0.5, 1.0, 2.0, 3.0)] == [
        5.91157864,
        2.45748898,
        0.60071622,
        0.17401839,
    ]
    assert round(theory.critical_depth(1.0, alibi=2.0), 8) == 3.36154865
    assert theory.critical_depth(1.0, alibi=0.0) == 0.0 and theory.critical_depth(0.0) == math.inf
    both = [theory.critical_depth(1.0), theory.critical_depth(2.0)]
    assert theory.critical_depth([1.0, 2.0]).tolist() == pytest.approx(both, rel=1e-14)


def test_golden_profile():
    """K2."""
    found = theory.retrieval_profile([0.1, 0.25, 0.5, 0.75, 0.9], 1.0)
    golden = [1.2821767946, 1.1954704979, 1.2655236928, 1.4228205738, 1.5454866182]
    assert np.abs(found.numpy() - golden).max() <= 5.1e-11


def test_random_parameters_against_forty_digits():
    rng = np.random.default_rng(1)
    for _ in range(60):
        s, t, beta = rng.uniform(1e-3, 1), 10 ** rng.uniform(-3, 3), 10 ** rng.uniform(-2, 2)
        alibi, width = rng.choice([0.0, 10 ** rng.uniform(-9, 2)]), 10 ** rng.uniform(0, 2)
        modes = int(rng.integers(1, 25))
        expected = log_profile(s, t, beta, alibi, width, modes)
        found = theory.log_retrieval_profile(s, t, beta, alibi, width, modes)
        assert abs(found - expected) <= 5e-14 * (1 + abs(expected)), (s, t, beta, alibi, width, modes)


def test_large_beta_keeps_its_digits():
    """log S ~ e^{beta/2}: its exponent is rounded to beta times eps."""
    for beta, t in ((300.0, 1e-40), (1000.0, 1e-3), (1300.0, 1e-9)):
        expected = log_profile(0.3, t, beta, 1.0, 8.0, 20)
        assert theory.log_retrieval_profile(0.3, t, beta) == pytest.approx(expected, rel=2.3e-16 * beta)
    for beta in (1e3, 1e5, 1e8):  # a_n^2 is no number there
        with mpmath.workdps(40):
            rates = [n**2 * mpmath.besseli(n, beta) for n in range(1, 21)]
            shares = [mpmath.exp(-((mpmath.pi * n / 8) ** 2) / 2) for n in range(1, 21)]
            first, second = (sum(w * a**k for w, a in zip(shares, rates, strict=True)) for k in (1, 2))
            expected = float(mpmath.log(2 * (1 - mpmath.exp(-1)) * first / second))
        if expected > -700:
            assert theory.critical_depth(beta) == pytest.approx(math.exp(expected), rel=1e-12)
        else:
            assert theory.critical_depth(beta) == 0.0


def test_without_recency_is_the_limit_of_small_slopes():
    places = np.linspace(0.01, 1.0, 50)
    flat = theory.retrieval_profile(places, 1.3, alibi=0.0)
    assert torch.allclose(theory.retrieval_profile(places, 1.3, alibi=1e-9), flat, rtol=1e-8, atol=0)
    assert len(turns(flat.numpy())) == 0 and flat[0] > flat[-1]


def test_at_the_last_place_each_mode_is_its_share_of_the_drift():
    """K6: g = lambda a t/(1 - e^{-lambda}) at s = 1."""
    for alibi in (0.5, 1.0, 3.0):
        rates = [n**2 * special.iv(n, 0.7) for n in range(1, 21)]
        shares = [math.exp(-((math.pi * n / 8) ** 2) / 2) for n in range(1, 21)]
        expected = alibi * 1.7 * np.dot(rates, shares) / -math.expm1(-alibi)
        assert theory.retrieval_profile(1.0, 1.7, 0.7, alibi) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(("beta", "alibi", "width"), [(1.0, 1.0, 8.0), (0.5, 1.2, 8.0), (2.0, 0.5, 4.0)])
def test_one_well_before_the_critical_depth_and_none_after(beta, alibi, width):
    """K3, and that t_crit is where the slope at s = 1 changes its sign."""
    critical = theory.critical_depth(beta, alibi, width)
    places = np.linspace(0.002, 1.0, 20001)
    for share in (0.3, 0.6, 0.9, 0.99):
        profile = theory.retrieval_profile(places, share * critical, beta, alibi, width).numpy()
        assert len(turns(profile)) == 1 and profile[-1] > profile[-2]
        assert theory.retrieval_profile(1e-12, share * critical, beta, alibi, width) > profile.max()
    for share in (1.01, 1.5, 4.0):
        profile = theory.retrieval_profile(places, share * critical, beta, alibi, width).numpy()
        assert len(turns(profile)) == 0 and profile[-1] < profile[-2]


@pytest.mark.parametrize("alibi", [1.0, 1.3, 1.36, 1.41, 1.5, 3.0])
def test_for_slopes_above_log_4_a_well_survives_the_critical_depth(alibi):
    """K7: of one mode, S''(1) at t_crit has the sign of e^{-lambda} - 1/4."""
    depth = theory.critical_depth(0.01, alibi)
    before, last = (theory.retrieval_profile(place, depth, 0.01, alibi) for place in (0.999, 1.0))
    assert (before > last) == (alibi < math.log(4))
    later = theory.retrieval_profile(np.linspace(0.02, 1.0, 20001), 1.001 * depth, 0.01, alibi).numpy()
    if abs(alibi - math.log(4)) > 0.05:  # nearer, the two extrema are gone at a thousandth above t_crit
        assert len(turns(later)) == (0 if alibi < math.log(4) else 2)


def test_golden_wells():
    """K3: places of the minimum."""
    places = np.linspace(0.02, 1.0, 98001)
    profiles = theory.retrieval_profile(places, np.array([0.5, 1.0, 1.5, 2.0])[:, None])
    found = places[profiles.numpy().argmin(1)]
    assert np.abs(found - [0.1251, 0.2592, 0.4182, 0.6329]).max() <= 2e-4


def test_several_heads_make_two_wells():
    places = np.linspace(0.02, 0.98, 2001)
    profile = theory.multihead_profile(places, 1.5, DOUBLE_WELL).numpy()
    found = turns(profile)
    assert len(found) == 3 and profile[found[1]] > profile[found[0]] and profile[found[1]] > profile[found[2]]
    assert profile[found[0]] == pytest.approx(profile[found[2]], abs=1e-6)  # the two wells are equally deep


@pytest.mark.parametrize("alibi", [0.0, 0.5, 4.0])
def test_the_recursion_is_a_matrix_exponential(alibi):
    n, t, beta = 40, 1.3, 0.8
    distance = np.arange(n)[:, None] - np.arange(n)
    weights = np.tril(np.exp(-alibi / n * distance), -1)
    weights[1:] /= weights[1:].sum(1, keepdims=True)
    expected = sum(
        math.exp(-((math.pi * mode / 8) ** 2) / 2)
        * (linalg.expm(t * mode**2 * special.iv(mode, beta) * weights) - np.eye(n))[-1]
        for mode in range(1, 21)
    )
    found = theory.token_profile(n, t, beta, alibi).numpy()
    assert np.abs(found - n * expected[:-1]).max() <= 1e-12 * n


def test_the_recursion_tends_to_the_closed_form_like_one_over_n():
    """K4, with its golden values."""
    exact = theory.retrieval_profile(0.4, 2.0, modes=1, width=1e9)
    assert round(exact, 5) == 1.85935
    values = [float(theory.token_profile(n, 2.0, modes=1, width=1e9)[2 * n // 5]) for n in (200, 400, 800)]
    assert [round(value, 5) for value in values] == [1.86256, 1.86096, 1.86016]
    errors = [value - exact for value in values]
    assert errors[0] / errors[1] == pytest.approx(2.0, abs=0.01) and errors[1] / errors[2] == pytest.approx(
        2.0, abs=0.005
    )


def test_shapes_broadcast():
    grid = theory.retrieval_profile(np.full((1, 3), 0.5), np.ones((4, 1)))
    assert tuple(grid.shape) == (4, 3) and isinstance(theory.retrieval_profile(0.5, 1), float)
    assert theory.retrieval_profile(0.5, 0.0) == 0.0 and theory.log_retrieval_profile(0.5, 0.0) == -math.inf
    assert theory.retrieval_profile(0.1, 1e9) == math.inf


@pytest.mark.parametrize(
    "call",
    [
        lambda: theory.retrieval_profile(0.0, 1.0),
        lambda: theory.retrieval_profile(1.5, 1.0),
        lambda: theory.retrieval_profile("0.5", 1.0),
        lambda: theory.retrieval_profile([0.1, 0.2], [1.0, 2.0, 3.0]),
        lambda: theory.retrieval_profile(0.5, -1.0),
        lambda: theory.retrieval_profile(0.5, 1.0, beta=1e9),
        lambda: theory.retrieval_profile(0.5, 1.0, alibi=-1.0),
        lambda: theory.retrieval_profile(0.5, 1.0, width=0.0),
        lambda: theory.retrieval_profile(0.5, 1.0, modes=0),
        lambda: theory.critical_depth(None),
        lambda: theory.critical_depth([1.0, math.nan]),
        lambda: theory.multihead_profile(0.5, 1.0, [(1.0, 2.0)]),
        lambda: theory.multihead_profile(0.5, 1.0, "heads"),
        lambda: theory.token_profile(1, 1.0),
    ],
)
def test_malformed_calls_are_sentences(call):
    with pytest.raises(InvalidInput) as refused:
        call()
    assert len(str(refused.value)) < 200
