import math

import numpy as np
import pytest
import torch

from metastable.errors import InvalidInput
from metastable.flows import SelfAttention, UnnormalizedAttention
from metastable.theory import critical_beta, escape_rate, last_departure, synchronisation_rate, tilting_rate
from metastable.weights import AttentionWeights

CASES = [(0.0, 0.5), (0.7, 0.5), (0.7, 0.2), (2.0, 0.35), (2.5, 0.01)]


def jacobian(beta, mass, normalized):
    """Of the field of two antipodal clusters in the plane and of a massless token at -e, by central differences."""
    flow = (SelfAttention if normalized else UnnormalizedAttention)(
        AttentionWeights(V=np.eye(2), B=np.eye(2)), beta
    )
    masses = torch.tensor([1 - mass, mass, 0.0], dtype=torch.float64)

    def field(tilt):
        angle = torch.tensor([0.0, math.pi, math.pi], dtype=torch.float64) + tilt
        points = torch.stack([angle.cos(), angle.sin()], dim=1)
        across = torch.stack([-angle.sin(), angle.cos()], dim=1)
        return (flow.velocity(0.0, points, masses) * across).sum(1)

    step = 1e-5
    columns = [
        (field(step * unit) - field(-step * unit)) / (2 * step) for unit in torch.eye(3, dtype=torch.float64)
    ]
    return torch.stack(columns, dim=1).numpy()


@pytest.mark.parametrize(("beta", "mass"), CASES)
@pytest.mark.parametrize("normalized", [True, False])
def test_rates_are_eigenvalues_of_the_field(beta, mass, normalized):
    J = jacobian(beta, mass, normalized)
    pair = sorted(np.linalg.eigvals(J[:2, :2]).real)
    assert pair[0] == pytest.approx(0.0, abs=1e-9)  # the pair as a whole may turn
    assert pair[1] == pytest.approx(tilting_rate(beta, mass, normalized), rel=1e-8)
    assert J[2, 2] == pytest.approx(escape_rate(beta, mass, normalized), rel=1e-8, abs=1e-9)


def test_the_rate_of_a_density_is_that_of_the_slower_part():
    assert [synchronisation_rate(d, 1.0) for d in (2, 3, 4, 9)] == [1.0, 2.0, 2.0, 2.0]
    for d in (2, 3, 5, 20):
        crossing = max(0.0, 0.5 * math.log((d - 1) / 2))
        for beta in (0.0, 0.4, 1.0, 3.0):
            expected = 2 * math.exp(beta) if beta < crossing else (d - 1) * math.exp(-beta)
            assert synchronisation_rate(d, beta, False) == pytest.approx(expected, rel=1e-14)


def test_a_minority_holds_together_above_its_critical_beta():
    for mass in (0.1, 0.3, 0.5):
        beta = critical_beta(mass)
        assert escape_rate(beta, mass) == 0.0 and escape_rate(beta, mass, False) == pytest.approx(0.0, abs=1e-15)
        assert escape_rate(beta + 0.1, mass) < 0 < escape_rate(beta, mass / 2)
    assert critical_beta(1.0) == -math.inf and escape_rate(0.3, 1.0) == -1.0
    assert tilting_rate(300.0, 0.3) > 0 and tilting_rate(1e6) == 0.0


def test_the_last_of_n_tokens_leaves_after_a_logarithm():
    assert last_departure(1, 2) == 0.0 and last_departure(10**6, 4) == pytest.approx(2 * math.log(10), rel=1e-14)


@pytest.mark.parametrize("value", [None, "3", [], 1j, math.nan, math.inf, 10**400, -1, np.ones(2), object()])
@pytest.mark.parametrize(
    "call",
    [
        lambda v: synchronisation_rate(v, 1.0), lambda v: synchronisation_rate(2, v), lambda v: escape_rate(v),
        lambda v: escape_rate(1.0, v), lambda v: critical_beta(v), lambda v: tilting_rate(v),
        lambda v: tilting_rate(1.0, v),
        lambda v: last_departure(v, 2), lambda v: last_departure(5, v), lambda v: tilting_rate(1.0, 0.5, v),
    ],
)  # fmt: skip
def test_malformed_calls_are_sentences(call, value):
    with pytest.raises(InvalidInput) as refused:
        call(value)
    assert len(str(refused.value)) < 200


def test_rates_that_overflow_are_refused():
    with pytest.raises(InvalidInput, match="overflows"):
        escape_rate(1e3, 0.1, normalized=False)
    assert escape_rate(1e3, 0.0, normalized=False) == 0.0
