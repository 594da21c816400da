"""ReLU attention: its field against the definition, its energy, and its equiangular times."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import metastable as ms
from metastable.errors import InvalidInput, NoEnergy
from metastable.flows import ReLUAttention, relu
from metastable.theory.scalar_heads import relu_travel_time
from small_runs import equiangular, gaussian, identity, low_rank_and_dense, random_measure, random_weights


def definition(x, m, V, B):
    scores = np.maximum(x @ B @ x.T, 0.0)
    F = (scores * m) @ x @ V.T
    return F - (F * x).sum(1, keepdims=True) * x


@given(seed=st.integers(0, 10**6), n=st.integers(1, 12), d=st.integers(2, 5))
def test_the_field_against_the_definition(seed, n, d):
    w, rho = random_weights(seed, d), random_measure(seed, n, d)
    x, m = rho.numpy()
    expected = definition(x, m, w.V.numpy(), w.B.numpy())
    assert np.abs(ReLUAttention(w).velocity(0.0, *rho).numpy() - expected).max() < 1e-12 * (1 + w.V_norm * w.B_norm)


def test_blocks_and_factors_give_the_same_field(monkeypatch):
    factored, dense = low_rank_and_dense(3, 2, 4)
    rho = random_measure(3, 20, 4)
    whole = ReLUAttention(dense).velocity(0.0, *rho)
    monkeypatch.setattr(relu, "PAIRS", 50)
    assert (ReLUAttention(factored).velocity(0.0, *rho) - whole).abs().max() < 1e-12


def test_the_energy_grows_as_a_gradient_flow():
    """dE/dt = sum_i m_i |x_i'|^2 for V = B symmetric, by central differences away from the kinks."""
    M = gaussian(1, 4, 4)
    flow, rho, h = ReLUAttention(ms.AttentionWeights(V=M + M.T, B=M + M.T)), random_measure(1, 6, 4), 1e-6
    velocity = flow.velocity(0.0, *rho)
    after, before = (flow.energy(*ms.Measure(rho.points + s * velocity, rho.mass)) for s in (h, -h))
    assert (after - before) / (2 * h) == pytest.approx(float(rho.mass @ velocity.square().sum(1)), rel=1e-6)
    with pytest.raises(NoEnergy, match="symmetric"):
        ReLUAttention(random_weights(0, 4)).energy(*rho)


@pytest.mark.parametrize(("n", "start", "end"), [(5, 0.1, 0.6), (12, 0.05, 0.9)])
def test_equiangular_tokens_take_the_closed_form_of_the_time(n, start, end):
    path = ms.solve(ReLUAttention(identity(n)), equiangular(n, start), relu_travel_time(end, n, start=start))
    assert float(path.end.points[0] @ path.end.points[1]) == pytest.approx(end, abs=1e-7)


def test_tokens_that_look_away_do_not_move():
    rho = ms.Measure(torch.tensor([[1.0, 0.0], [-0.6, 0.8]]))
    assert float(ReLUAttention(identity(2)).velocity(0.0, *rho).abs().max()) == 0.0


def test_bad_input_is_a_sentence():
    for call in (
        lambda: ReLUAttention(None),
        lambda: ReLUAttention(identity(3)).velocity(0.0, torch.eye(2), [0.5, 0.5]),
        lambda: ReLUAttention(identity(2)).energy(torch.eye(2), [0.5, 0.5], t="now"),
    ):
        with pytest.raises(InvalidInput):
            call()
