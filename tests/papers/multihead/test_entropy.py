import pytest
import torch

from metastable import AttentionWeights, Measure, sphere
from metastable.observe import entropy_production
from metastable.papers.multihead.entropy import CLUSTERING, DISPERSING, production_errors, queries_alone
from metastable.papers.multihead.heads import symmetric, together
from metastable.theory.scalar_heads import critical_beta, pull
from small_claims import small_verdict


def test_queries_alone_are_the_production_of_a_query_that_moves_by_itself():
    """dS_0/dt when only token 0 moves, less its own key, which moves with it."""
    M, x = symmetric(3, 1, 4)[0], sphere.uniform(6, 3, 4)
    rho, w = Measure(x, [0, 1, 1, 1, 1, 1]), AttentionWeights(V=M, B=M)
    velocity = torch.zeros_like(x)
    velocity[0] = torch.tensor([0.3, -0.2, 0.5])
    exact = entropy_production(rho, w, 1.4, velocity)[0]
    others = Measure(x[1:])
    scores = 1.4 * x[:1] @ w.B @ others.points.T
    change = 1.4 * velocity[:1] @ w.B @ others.points.T
    A = torch.softmax(scores, dim=1)
    assert float(exact) == pytest.approx(
        float((A * scores).sum() * (A * change).sum() - (A * scores * change).sum())
    )
    assert float(queries_alone(Measure(x), w, 1.4, torch.zeros_like(x)).abs().max()) == 0


def test_the_identity_closes_and_its_rivals_do_not():
    errors = production_errors(together(symmetric(3, 2, 3), 1.0), sphere.uniform(6, 3, 3), 0.3)
    assert errors["identity"] < 1e-10 and min(errors["other sign"], errors["keys at rest"]) > 1e-3


def test_tokens_cluster_and_disperse_as_they_are_said_to():
    for _, start, beta, m in CLUSTERING:
        assert pull(start, beta, m) > 0
    _, start, beta, (m, repulsion) = DISPERSING
    assert beta < critical_beta(m, -repulsion, start)


def test_entropies_end_at_ln_n_and_single_ones_fall_on_the_way():
    for row in small_verdict("entropy-rises-to-ln-n").table:
        assert row["S/ln n at first"] < 0.9 and row["at last"] == pytest.approx(1.0, abs=1e-6)
    figure = small_verdict("entropy-of-single-tokens-falls").figure
    assert figure.series[1].y[0] > figure.series[1].y.min() + 0.02
