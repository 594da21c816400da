"""The equiangular reduction for scalar heads against the flow of all tokens, quadrature and golden values."""

import math

import pytest
import torch
from scipy import integrate

import metastable as ms
from metastable.errors import InvalidInput
from metastable.theory import scalar_heads
from metastable.theory.scalar_heads import (
    critical_beta,
    dominance_threshold,
    pull,
    radial_shadow,
    relu_travel_time,
    speed,
    tangential_square,
    travel_time,
)
from small_runs import equiangular

HEADS = [(1.0,), (1.5, 0.5), (1.0, -2.0), (0.7, 0.7, 0.3)]


def flow(n, beta, strengths):
    eye = torch.eye(n, dtype=torch.float64)
    heads = [ms.UnnormalizedAttention(ms.AttentionWeights(V=m * eye, B=m * eye), beta) for m in strengths]
    return ms.MultiHead(heads)


@pytest.mark.parametrize("strengths", HEADS)
@pytest.mark.parametrize(("n", "g", "beta"), [(2, -0.3, 1.0), (5, 0.3, 2.0), (9, 0.0, 0.0), (6, -0.19, 0.7)])
def test_speed_is_that_of_the_tokens(n, g, beta, strengths):
    rho = ms.Measure(equiangular(n, g))
    velocity = flow(n, beta, strengths).velocity(0.0, *rho)
    measured = float(velocity[0] @ rho.points[1] + rho.points[0] @ velocity[1])
    assert speed(g, n, beta, strengths) == pytest.approx(measured, abs=1e-12)


@pytest.mark.parametrize(
    ("start", "end", "n", "beta", "strengths"),
    [(0.1, 0.9, 7, 2.0, (1.5, 0.5, -0.3)), (0.3, -0.05, 7, 0.3, (1.0, -2.0)), (-0.1, 0.9, 7, 0.0, (1.0,))],
)
def test_travel_times_against_quadrature(start, end, n, beta, strengths):
    expected = integrate.quad(lambda g: 1 / speed(g, n, beta, strengths), start, end, epsrel=1e-11)[0]
    assert travel_time(end, n, beta, strengths, start=start) == pytest.approx(expected, rel=1e-10)


def test_travel_times_of_a_single_head_are_those_of_unnormalised_attention():
    for beta, start, end in ((0.0, 0.0, 0.5), (2.0, 0.05, 0.999), (3.0, -0.02, 0.3)):
        expected = ms.theory.equiangular.travel_time(end, 32, beta, start, normalized=False)
        assert travel_time(end, 32, beta, start=start) == pytest.approx(expected, rel=1e-10)
    assert travel_time(0.3, 5, 1.0, start=0.3) == 0.0


def test_golden_times_of_relu_and_exponential_attention():
    assert [round(travel_time(0.5, 50, 1.0, start=d**-0.5), 2) for d in (100, 10_000)] == [0.79, 1.49]
    assert [round(relu_travel_time(0.5, 50, start=d**-0.5), 2) for d in (100, 10_000)] == [4.67, 28.56]


def test_relu_times_against_quadrature_and_their_two_regimes():
    n, start = 13, 0.02
    expected = integrate.quad(lambda g: n / (2 * g * (1 - g) * (1 + (n - 1) * g)), start, 0.7, epsrel=1e-11)[0]
    assert relu_travel_time(0.7, n, start=start) == pytest.approx(expected, rel=1e-10)
    few, many = 10, 10**9
    step = relu_travel_time(0.5, few, start=1e-8) - relu_travel_time(0.5, few, start=1e-7)
    assert step == pytest.approx(few / 2 * math.log(10), rel=1e-5)
    assert relu_travel_time(0.5, many, start=1e-4) == pytest.approx(1 / 2e-4, rel=2e-3)


@pytest.mark.parametrize("strength", [1.0, 0.6, -1.3])
@pytest.mark.parametrize(("n", "g", "beta"), [(4, 0.3, 1.2), (7, -0.1, 0.5), (5, 0.9, 3.0)])
def test_sizes_of_shadow_and_tangent(n, g, beta, strength):
    rho = ms.Measure(equiangular(n, g))
    found = ms.observe.head_energies(rho, flow(n, beta, (strength,)))
    assert radial_shadow(g, n, beta, strength) == pytest.approx(n * float(found.shadow[0, 1]), rel=1e-12)
    measured = n**2 * float(found.tangential[0, 1].square().sum())
    assert tangential_square(g, n, beta, strength) == pytest.approx(measured, rel=1e-10)


@pytest.mark.parametrize(("n", "heads", "g"), [(40, 3, 0.1), (40, 3, 0.0), (12, 2, 0.2), (100, 8, -0.005)])
def test_the_threshold_is_where_radial_dominance_ends(n, heads, g):
    beta = dominance_threshold(n, heads, g)

    def margin(beta):
        return tangential_square(g, n, beta) - (heads - 1) * radial_shadow(g, n, beta) ** 2

    assert margin(beta - 1e-6) > 0 > margin(beta + 1e-6)


def test_golden_thresholds():
    assert dominance_threshold(40, 3, 0.1) == pytest.approx(1.86827927, abs=5e-9)
    assert dominance_threshold(40, 3) == pytest.approx(0.5 * math.log(39 / 2), rel=1e-14)
    assert dominance_threshold(40, 1, 0.1) == math.inf
    assert dominance_threshold(40, 3, 0.9) == dominance_threshold(40, 3, 1.0) == -math.inf
    assert [round(pull(0.5, 1.0, m), 4) for m in ((1.5, 0.5), (1, 1))] == [3.8175, 3.2974]
    assert round(critical_beta(1.0, 2.0, 0.25), 9) == round(math.log(2) / 0.75, 9)


def test_the_critical_beta_is_where_opposite_heads_balance():
    for m, mu, g in ((1.0, 2.0, 0.3), (0.5, 0.8, 0.9), (2.0, 1.0, 0.5)):
        beta = critical_beta(m, mu, g)
        if beta > 0:
            assert pull(g, beta, (m, -mu)) == pytest.approx(0.0, abs=1e-12)
            assert pull(g, beta + 0.01, (m, -mu)) > 0 > pull(g, beta - 0.01, (m, -mu))
        else:
            assert pull(g, 0.0, (m, -mu)) > 0


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: travel_time(0.9, 5, 1.0, (1.0, -2.0), start=0.1), "does not travel from 0.1 to 0.9"),
        (lambda: travel_time(1.0, 5, 1.0), "does not travel"),
        (lambda: speed(-0.9, 5, 1.0), r"equiangular tokens lies in \[-0.25, 1\], got -0.9"),
        (lambda: pull(1.0, 1000.0, [1.0]), "overflows above 709, got 1000"),
        (lambda: pull(0.5, 1.0, []), "one number <= 1e.100 per head"),
        (lambda: relu_travel_time(0.5, 5, start=0.0), "start overlap must be > 0"),
        (lambda: critical_beta(0.0, 1.0, 0.5), "attraction must be > 0"),
        (lambda: critical_beta(1.0, 2.0, 5e-324), "the critical beta overflows"),
    ],
)
def test_what_has_no_answer_is_refused_in_a_sentence(call, match):
    with pytest.raises(InvalidInput, match=match):
        call()


STRANGE = [None, "3", [], {}, [[1.0], [2.0, 3.0]], 1j, math.nan, math.inf, 10**400, -1e300, 2**63, object()]


@pytest.mark.parametrize("strange", STRANGE, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("pull", (0.5, 1.0, (1.0,))),
        ("speed", (0.5, 5, 1.0, (1.0,))),
        ("travel_time", (0.5, 5, 1.0, (1.0,))),
        ("radial_shadow", (0.5, 5, 1.0, 1.0)),
        ("tangential_square", (0.5, 5, 1.0, 1.0)),
        ("dominance_threshold", (5, 2, 0.5)),
        ("critical_beta", (1.0, 2.0, 0.5)),
    ],
)
def test_malformed_calls_return_or_refuse_in_a_sentence(name, right, strange):
    for place in range(len(right)):
        sentence = ""
        try:
            assert isinstance(getattr(scalar_heads, name)(*right[:place], strange, *right[place + 1 :]), float)
        except InvalidInput as refused:
            sentence = str(refused)
        assert len(sentence) < 200 and "\n" not in sentence
