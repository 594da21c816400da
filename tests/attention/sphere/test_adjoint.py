"""The transpose of attention on S^2 by grids, against all pairs."""

import math

import pytest
import torch

from metastable.attention.backwards import Backwards
from metastable.attention.direct import adjoint_over_pairs
from metastable.attention.operands import TokensOfStep
from metastable.attention.sphere.adjoint import laid_cost, lay_out, sphere_adjoint
from metastable.attention.sphere.layout import PIECES

N = 1200
WEIGHTS = {
    "one": torch.eye(3).double(),
    "turned": torch.linalg.qr(torch.tensor([[1.0, 2.0, 0.3], [-0.5, 1.0, 0.9], [0.2, -1.0, 2.0]]).double())[0],
    "triangular": torch.tensor([[1.0, 0.3, 0.3], [0.0, 1.0, 0.3], [0.0, 0.0, 1.0]]).double(),
    "oblique": torch.tensor([[1.3, 0.7, -0.2], [0.1, 0.6, 0.5], [0.4, -0.3, 1.1]]).double(),
}


def problem(B, beta, seed, clusters=None, shifted=True):
    """Queries beta B^T y of tokens y on S^2, anywhere or in clusters of a spread; what they attend to."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=draw)

    keys = normal(N, 3)
    if clusters is not None:
        keys = torch.eye(3).double()[torch.arange(N) % 3] + clusters * keys
    keys = keys / keys.norm(dim=1, keepdim=True)
    mass = torch.rand(N, dtype=torch.float64, generator=draw) + 0.1
    log_mass, queries, g = torch.log(mass), beta * keys @ B, normal(N, 3)
    scores = queries @ keys.T + log_mass
    mean = torch.softmax(scores, 1) @ keys
    shift = (g * mean).sum(1) if shifted else torch.zeros(N).double()
    return Backwards(queries, keys, log_mass, torch.logsumexp(scores, 1), g, shift, mean)


def along(keys, vectors):
    return vectors - (vectors * keys).sum(1, keepdim=True) * keys


def worst(given, found):
    """Largest errors of (by_query, by_key along the sphere), beside sums of the absolute values of their terms."""
    expected = adjoint_over_pairs(given)
    longest, sizes = float(given.queries.norm(dim=1).max()), given.cotangent.norm(dim=1) + given.shift.abs()
    terms = float((torch.softmax(given.queries @ given.keys.T + given.log_mass, 1).T @ sizes).max())
    by_query = float(((found[0] - expected[0]).norm(dim=1) / sizes).max())
    return by_query, float(along(given.keys, found[1] - expected[1]).norm(dim=1).max()) / (1 + longest) / terms


@pytest.mark.parametrize("rtol", [1e-10, 1e-6])
@pytest.mark.parametrize("beta", [1.0, 8.0, 64.0])
@pytest.mark.parametrize("B", WEIGHTS)
def test_it_is_the_transpose_to_a_hundredth_of_its_tolerance(B, beta, rtol):
    given = problem(WEIGHTS[B], beta, seed=int(beta), shifted=beta != 8.0)
    laid = lay_out(given, rtol)
    assert laid is not None and laid.held.mean() > 0.9
    assert max(worst(given, sphere_adjoint(given, laid))) < 0.01 * rtol + 1e-15 * (1 + beta)


@pytest.mark.parametrize(("B", "beta"), [("turned", 256.0), ("triangular", 256.0)])
def test_sharp_rows_are_held_to_a_coarser_tolerance(B, beta):
    given = problem(WEIGHTS[B], beta, seed=3)
    laid = lay_out(given, 1e-7)
    assert laid is not None and max(worst(given, sphere_adjoint(given, laid))) < 1e-9


def test_rows_that_look_away_from_all_keys_are_taken_over_all_keys():
    """Three clusters, one of which has its queries on the other side of the sphere."""
    given = problem(torch.diag(torch.tensor([-1.0, 1.0, 1.2]).double()), 24.0, seed=5, clusters=0.05)
    laid = lay_out(given, 1e-8)
    assert laid is not None and 0.2 < laid.held.mean() < 0.8
    assert max(worst(given, sphere_adjoint(given, laid))) < 1e-10


def test_queries_off_an_ellipsoid_are_refused():
    given = problem(WEIGHTS["oblique"], 4.0, seed=1)
    moved = given._replace(queries=given.queries + torch.tensor([0.5, 0.0, 0.2]).double())
    assert lay_out(moved, 1e-8) is None


@pytest.mark.parametrize("B", ["one", "oblique"])
def test_scaled_masses_and_the_order_of_pieces_change_nothing(monkeypatch, B):
    given = problem(WEIGHTS[B], 8.0, seed=2)
    one = sphere_adjoint(given, lay_out(given, 1e-9))
    shifted = given._replace(log_mass=given.log_mass + 500.0, log_partition=given.log_partition + 500.0)
    scaled = sphere_adjoint(shifted, lay_out(shifted, 1e-9))
    assert all(float((a - b).abs().max()) < 1e-11 for a, b in zip(one, scaled, strict=True))

    def in_turn(work, n, **options):
        for start in reversed(range(n)):
            work(start, start + 1)

    for module in ("adjoint", "layout"):
        monkeypatch.setattr(f"metastable.attention.sphere.{module}.over_rows", in_turn)
    again = sphere_adjoint(given, lay_out(given, 1e-9))
    assert all(bool((a == b).all()) for a, b in zip(one, again, strict=True)) and PIECES > 1


def test_rows_over_all_keys_and_ellipsoids_cost_more():
    given = problem(WEIGHTS["one"], 4.0, seed=0)
    laid = lay_out(given, 1e-8)
    fewer = laid._replace(held=laid.held & (torch.arange(N) < N // 2).numpy())
    other = problem(WEIGHTS["oblique"], 4.0, seed=0)
    assert laid_cost(laid) < laid_cost(fewer)
    assert laid_cost(laid) < laid_cost(lay_out(other, 1e-8)) < math.inf


def test_stages_of_a_step_follow_the_plan_of_the_first_and_err_as_little():
    beta, rtol = 16.0, 1e-8
    step = TokensOfStep(beta * WEIGHTS["oblique"])
    plans = []
    for seed in (1, 2, 3):
        given = problem(WEIGHTS["oblique"], beta, seed=seed)
        laid = lay_out(given, rtol, step)
        assert laid is not None and laid.held.mean() > 0.9
        assert max(worst(given, sphere_adjoint(given, laid))) < 0.01 * rtol
        plans.append(laid.grids)
    assert plans[1] is plans[0] and plans[2] is plans[0]
