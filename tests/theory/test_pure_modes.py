import math

import numpy as np
import pytest
import torch
from mpmath import mp

from metastable.errors import InvalidInput
from metastable.theory import PureMode, attention_jacobian, selection_weights, split_factor, split_threshold


def random_mode(rng: np.random.Generator) -> PureMode:
    d, plus, minus = int(rng.integers(2, 6)), int(rng.integers(0, 6)), int(rng.integers(0, 6))
    values = rng.normal(size=d) * rng.choice([0.5, 1.0, 3.0])
    beta = float(np.exp(rng.uniform(math.log(0.02), math.log(9))))
    return PureMode(values, int(rng.integers(d)), max(plus, 1 - minus), minus, beta)


def numerical(mode: PureMode) -> np.ndarray:
    w = selection_weights(np.diag(mode.eigenvalues))
    return np.sort(torch.linalg.eigvals(attention_jacobian(w, mode.beta, mode.points())).numpy().real)[::-1]


@pytest.mark.parametrize("seed", range(200))
def test_the_rates_are_the_eigenvalues_of_the_jacobian(seed):
    mode = random_mode(np.random.default_rng(seed))
    found = numerical(mode)
    scale = max(1.0, max(map(abs, mode.eigenvalues)))
    for rate in mode.rates:
        assert np.abs(found - rate).min() < 1e-12 * scale, (mode, rate)
    for value in found:
        assert min(abs(value - rate) for rate in mode.rates) < 1e-12 * scale, (mode, value)
    assert mode.stable is bool(found[0] < 0) or abs(mode.growth) < 1e-12 * scale
    if mode.published_applies:
        assert mode.published is mode.stable or abs(mode.growth) < 1e-12 * scale


def test_the_published_form_is_wrong_for_a_singleton():
    mode = PureMode((1.251, -1.614, -2.137), axis=0, plus=4, minus=1, beta=0.537)
    assert mode.stable and not mode.published and not mode.published_applies
    assert mode.growth == pytest.approx(-0.72, abs=5e-3) and numerical(mode)[0] == pytest.approx(mode.growth)


def test_one_token_climbs_to_the_top_even_of_a_negative_spectrum():
    assert PureMode((-1.0, -2.0), 0, 1, 0, 1.0).stable and PureMode((-1.0, -2.0), 0, 0, 1, 1.0).stable
    assert not PureMode((-1.0, -2.0), 0, 2, 0, 1.0).stable  # two of them repel each other
    assert not PureMode((-1.0, -2.0), 1, 1, 0, 1.0).stable


def test_only_the_most_negative_axis_of_a_negative_spectrum_is_split_stably():
    for beta in (0.05, 1.0, 20.0):
        assert [PureMode((-1.0, -2.0, -3.0), p, 3, 3, beta).stable for p in range(3)] == [False, False, True]


def test_the_majority_falls_apart_below_the_threshold():
    for plus, minus in ((2, 1), (3, 2), (5, 2), (1, 4)):
        at = split_threshold(-2.0, plus / minus)
        assert at == pytest.approx(abs(math.log(plus / minus)) / 4)
        assert not PureMode((-1.0, -2.0), 1, plus, minus, 0.999 * at).stable
        assert PureMode((-1.0, -2.0), 1, plus, minus, 1.001 * at).stable


@pytest.mark.parametrize("seed", range(40))
def test_sigma_is_the_published_expression_to_all_digits(seed):
    rng = np.random.default_rng(seed)
    beta, value = float(np.exp(rng.uniform(-12, 3))), float(rng.normal())
    ratio = float(np.exp(rng.normal()))
    with mp.workdps(60):
        c, r = mp.exp(2 * mp.mpf(beta) * mp.mpf(value)), mp.mpf(ratio)
        exact = (c - r) * (c * r - 1) / (r * (c**2 - 1))
        # Near c = r or c = 1/r sigma vanishes: its digits there are those of ln r.
        size = 1 + abs(float(exact)) + 1 / abs(2 * beta * value)
        assert abs(split_factor(beta, value, ratio) - float(exact)) < 1e-14 * size


def test_a_matrix_is_counted_from_its_largest_eigenvalue():
    axes = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))[0]
    V = axes @ np.diag([-1.0, 2.0, 0.5]) @ axes.T
    turned, plain = PureMode(V, 0, 3, 2, 1.0), PureMode((2.0, 0.5, -1.0), 0, 3, 2, 1.0)
    assert turned.growth == pytest.approx(plain.growth, abs=1e-13) and turned.value == pytest.approx(2.0)


def test_marginal_modes_are_not_stable():
    assert PureMode((-2.0, -2.0), 0, 2, 2, 1.0).growth == 0.0  # a degenerate eigenvalue: a neutral direction
    assert not PureMode((-2.0, -2.0), 0, 2, 2, 1.0).stable and not PureMode((0.0, -1.0), 0, 2, 0, 1.0).stable
    assert not PureMode((1.0, -1.0), 0, 2, 2, 0.0).stable and not PureMode((1.0, -1.0), 0, 2, 2, 0.0).published


@pytest.mark.parametrize("beta", [0.0, 5e-324, 1e-300, 700.0, 1e100])
def test_extreme_temperatures_and_groups_give_numbers(beta):
    for plus, minus in ((1, 1), (2, 2**53), (2**53, 0), (0, 3)):
        mode = PureMode((1e100, -1e100, 1e-300), 0, plus, minus, beta)
        assert math.isfinite(mode.growth) and isinstance(mode.published, bool)


@pytest.mark.parametrize(
    "arguments",
    [
        (None, 0, 1, 1, 1.0), ((1.0,), 0, 1, 1, 1.0), ((1.0, 2.0), 2, 1, 1, 1.0), ((1.0, 2.0), 0, -1, 1, 1.0),
        ((1.0, 2.0), 0, 0, 0, 1.0), ((1.0, 2.0), 0, 1, 1, -1.0), ((1.0, np.inf), 0, 1, 1, 1.0),
        ([[1.0, 1.0], [0.0, 1.0]], 0, 1, 1, 1.0), ((1.0, 2.0), 0.5, 1, 1, 1.0), ((1.0, 2.0), 0, 10**400, 1, 1.0),
    ],
)  # fmt: skip
def test_malformed_modes_are_sentences(arguments):
    with pytest.raises(InvalidInput) as refused:
        PureMode(*arguments)
    assert len(str(refused.value)) < 200


def test_sigma_and_threshold_need_an_eigenvalue_that_is_not_zero():
    for call in (lambda: split_factor(1.0, 0.0, 2.0), lambda: split_threshold(0.0, 2.0)):
        with pytest.raises(InvalidInput, match="got"):
            call()


def test_sigma_of_extreme_groups_is_a_number():
    for ratio in (1e-100, 1e100):
        for beta in (1e-3, 1.0, 1e99):
            assert math.isfinite(split_factor(beta, -1.0, ratio))
