"""Causal attention against sums in extended precision, row by row."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metastable.attention.direct.causal import _blocks, attend_causal


def one_by_one(queries, keys, values, log_mass, beta, include_self):
    """(mean, log Z) of every row over the keys before it; zero and -infinity where it sees no mass."""
    mean, logs = np.zeros_like(values), np.full(len(keys), -np.inf)
    for i, query in enumerate(queries):
        seen = i + include_self
        score = (beta * (keys[:seen] @ query)).astype(np.longdouble) + log_mass[:seen]
        if seen == 0 or score.max() == -np.inf:
            continue
        weight = np.exp(score - score.max())
        mean[i] = (weight[:, None] * values[:seen]).sum(0) / weight.sum()
        logs[i] = score.max() + np.log(weight.sum())
    return mean, logs


def problem(seed, n, d, d_v, spread):
    """Queries, keys and values of length about 1, log masses of this spread, a tenth of them none."""
    rng = np.random.default_rng(seed)
    q, k, v = (rng.normal(size=(n, c)) / math.sqrt(c) for c in (d, d, d_v))
    log_mass = spread * rng.normal(size=n)
    log_mass[rng.random(n) < 0.1] = -np.inf
    return q, k, v, log_mass


def errors(case, beta, include_self, method=attend_causal):
    """Largest errors of mean and log Z, in units of the rounding of the exponents."""
    found = [a.numpy() for a in method(*map(torch.from_numpy, case), beta, include_self)]
    expected = one_by_one(*case, beta, include_self)
    finite = np.isfinite(expected[1])
    assert (np.isfinite(found[1]) == finite).all()
    q, k, _, log_mass = case
    exponent = 1 + beta * np.linalg.norm(q, axis=1).max() * np.linalg.norm(k, axis=1).max()
    exponent += np.abs(log_mass[np.isfinite(log_mass)]).max(initial=0.0)
    unit = 2.3e-16 * exponent
    log_error = np.abs(found[1][finite] - expected[1][finite]).max(initial=0.0)
    return np.abs(found[0] - expected[0]).max(initial=0.0) / unit, log_error / unit


@given(
    seed=st.integers(0, 10**6),
    n=st.sampled_from([1, 2, 15, 16, 17, 33, 100]),
    d=st.sampled_from([(2, 2), (3, 3), (3, 2), (9, 3), (2, 9)]),
    beta=st.sampled_from([0.0, 1.0, 40.0, 300.0, 3000.0]),
    spread=st.sampled_from([0.0, 1.0, 100.0, 1e4]),
    include_self=st.booleans(),
)
def test_any_rows_against_extended_precision(seed, n, d, beta, spread, include_self):
    case = problem(seed, n, *d, spread)
    mean, log_partition = errors(case, beta, include_self)
    assert mean < 50 and log_partition < 50


@pytest.mark.parametrize("n", [1040, 1041])
@pytest.mark.parametrize("beta", [3.0, 2000.0])
@pytest.mark.parametrize("include_self", [True, False])
def test_more_keys_than_a_block(n, beta, include_self):
    case = problem(n, n, 3, 3, 1.0)
    assert max(errors(case, beta, include_self)) < 50
    assert max(errors(case, beta, include_self, _blocks)) < 50


def test_threads_do_not_change_a_digit():
    case = [torch.from_numpy(a) for a in problem(0, 1501, 2, 2, 1.0)]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = attend_causal(*case, 4.0, True)
        torch.set_num_threads(2)
        together = attend_causal(*case, 4.0, True)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(alone[0], together[0]) and torch.equal(alone[1], together[1])


def test_later_tokens_change_nothing():
    case = [torch.from_numpy(a) for a in problem(3, 200, 2, 2, 1.0)]
    fewer = attend_causal(*(a[:70] for a in case), 5.0, True)
    assert torch.allclose(attend_causal(*case, 5.0, True)[0][:70], fewer[0], rtol=0, atol=1e-14)


def test_single_precision_is_computed_in_double():
    case = [torch.from_numpy(a) for a in problem(4, 50, 2, 2, 1.0)]
    single = attend_causal(*(a.float() for a in case), 5.0, True)
    double = attend_causal(*(a.float().double() for a in case), 5.0, True)
    assert single[0].dtype == torch.float32 and torch.equal(single[0], double[0].float())


def test_without_any_mass_nothing_is_attended():
    x = torch.eye(2, dtype=torch.float64)
    none = torch.full((2,), -math.inf, dtype=torch.float64)
    for method in (attend_causal, _blocks):
        mean, log_partition = method(x, x, x, none, 1.0, True)
        assert not mean.any() and (log_partition == -math.inf).all()
