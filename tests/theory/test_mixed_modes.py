import math

import numpy as np
import pytest
from mpmath import mp

from metastable import SelfAttention
from metastable.errors import InvalidInput, NotDefined
from metastable.measure import Measure
from metastable.theory import mixed_equilibria, mixed_points, selection_weights

GOLDEN = {
    (2.0, -3.0, 1.5, 1, 1): 0.0239051913,
    (-0.4, -4.0, 0.03, 1, 1): -0.2341172382,
    (-2.0, -4.0, 0.03, 1, 1): -0.4323657845,
}


@pytest.mark.parametrize("case", GOLDEN)
def test_golden_roots_to_ten_digits(case):
    assert GOLDEN[case] in [round(q, 10) for q in mixed_equilibria(*case)]


def balance(q, a, b, beta, m, k):
    """The equation as it stands, in high precision."""
    q, a, b, beta = map(mp.mpf, (q, a, b, beta))
    inner = (a - b) * mp.exp(beta * (b + (a - b) * q**2)) + (a + b) * mp.exp(beta * (-b + (a + b) * q**2))
    return q * inner + a * mp.mpf(m) / k * mp.exp(beta * a * q)


@pytest.mark.parametrize("seed", range(12))
def test_every_root_is_found_to_all_digits_and_rests(seed):
    rng = np.random.default_rng(seed)
    a, b = (float(x) for x in rng.normal(size=2) * 2)
    beta, m, k = float(np.exp(rng.uniform(-3.5, 1.5))), int(rng.integers(1, 5)), int(rng.integers(1, 5))
    found = mixed_equilibria(a, b, beta, m, k)
    grid = np.linspace(-1, 1, 1501)
    signs = np.sign([float(balance(q, a, b, beta, m, k)) for q in grid])
    assert len(found) == int((signs[1:] * signs[:-1] < 0).sum())
    flow = SelfAttention(selection_weights(np.diag([a, b])), beta)
    for q in found:
        with mp.workdps(40):
            exact = mp.findroot(lambda x: balance(x, a, b, beta, m, k), mp.mpf(q))
        assert abs(float(exact) - q) < 1e-12
        rho = Measure(mixed_points(q, m, k))
        # The root is known to an ulp or two; the field magnifies it by |V| (1 + beta |V|).
        scale = max(abs(a), abs(b))
        assert float(flow.velocity(0.0, *rho).abs().max()) < 1e-15 * (1 + scale) * (1 + beta * scale)


def test_there_are_more_roots_than_the_golden_one():
    """Two saddles beside the stable state of the first golden case."""
    assert [round(q, 6) for q in mixed_equilibria(2.0, -3.0, 1.5)] == [-0.906525, 0.023905, 0.800752]


def test_simple_cases():
    assert mixed_equilibria(1.0, -2.0, 0.0) == (pytest.approx(-0.5),)  # beta = 0: q = -m/(2k)
    assert mixed_equilibria(1.0, -2.0, 0.0, m=3, k=1) == ()
    assert mixed_equilibria(0.0, -2.0, 1.0) == (0.0,)
    with pytest.raises(NotDefined, match="every q is at rest"):
        mixed_equilibria(0.0, 0.0, 1.0)


def test_cold_cases_do_not_overflow():
    for beta in (50.0, 1e3):
        for q in mixed_equilibria(2.0, -3.0, beta, 2, 1):
            assert -1 < q < 1
    with pytest.raises(InvalidInput, match="must be <= 10000"):
        mixed_equilibria(2.0, -3.0, 1e9)


def test_points_are_on_the_circle():
    x = mixed_points(-0.3, m=2, k=3)
    assert x.shape == (8, 2) and np.allclose((x**2).sum(1), 1, atol=1e-15) and math.isclose(x[2:].sum(), 6 * -0.3)


@pytest.mark.parametrize(
    "arguments", [(None, 1.0, 1.0), (1.0, "b", 1.0), (1.0, 1.0, -1.0), (1.0, 1.0, 1.0, 0), (1.0, 1.0, 1.0, 1, 2.5)]
)
def test_malformed_arguments_are_sentences(arguments):
    with pytest.raises(InvalidInput) as refused:
        mixed_equilibria(*arguments)
    assert len(str(refused.value)) < 200
