"""The transpose by matrix products against sums over pairs that are written out, on sizes that fit no tile."""

import math

import pytest
import torch

from metastable.attention.backwards import Backwards
from metastable.attention.direct.adjoint_products import PIECES, adjoint_by_products


def normal(*shape, seed):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def problem(rows, n, d, sharp, spread=0.0):
    """Queries, keys, masses e^{+- spread}, and cotangents, with the true log Z."""
    keys = torch.nn.functional.normalize(normal(n, d, seed=n), dim=1)
    queries = sharp * normal(rows, d, seed=rows + 1) / math.sqrt(d)
    log_mass = spread * (2 * torch.rand(n, dtype=torch.float64, generator=torch.Generator().manual_seed(5)) - 1)
    log_z = torch.logsumexp(queries @ keys.T + log_mass, 1)
    g, s = normal(rows, d, seed=3), normal(rows, seed=4)
    return Backwards(queries, keys, log_mass, log_z, g, s, g)


def written_out(given, ahead=None):
    q, y, log_mass, log_z, g, s, _ = given
    w = torch.exp(q @ y.T + log_mass - log_z[:, None])
    if ahead is not None:
        w = w.tril(ahead - 1)
    c = w * (g @ y.T - s[:, None])
    return c @ y, w.T @ g + c.T @ q


def close(found, expected, tolerance):
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.shape == theirs.shape
        assert float((mine - theirs).abs().max()) <= tolerance * float(theirs.abs().max() + 1e-300)


@pytest.mark.parametrize("d", [1, 4, 5, 6, 7, 8, 9, 33])
@pytest.mark.parametrize(("rows", "n"), [(1, 1), (1, 300), (127, 129), (257, 513), (130, 700), (1029, 260)])
def test_it_is_the_sum_over_pairs(rows, n, d):
    given = problem(rows, n, d, 4.0, spread=2.0)
    close(adjoint_by_products(given, n), written_out(given), 1e-13)


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("n", [1, 128, 301, 520])
def test_rows_see_the_keys_before_them(n, ahead):
    given = problem(n, n, 6, 3.0)
    log_z = torch.logsumexp(
        (given.queries @ given.keys.T).masked_fill(torch.ones(n, n).triu(ahead).bool(), -math.inf), 1
    )
    given = given._replace(log_partition=log_z)
    expected = written_out(given._replace(log_partition=log_z.clamp(min=-1e3)), ahead)
    close(adjoint_by_products(given, ahead), expected, 1e-13)


@pytest.mark.parametrize(
    ("sharp", "spread", "tolerance"), [(0.0, 1.0, 1e-13), (3e3, 0.0, 1e-9), (5.0, 300.0, 1e-10)]
)
def test_no_score_at_all_sharp_ones_and_masses_that_differ_by_all_orders(sharp, spread, tolerance):
    given = problem(140, 270, 5, sharp, spread)
    close(adjoint_by_products(given, 270), written_out(given), tolerance)


def test_keys_without_mass_feel_nothing_and_rows_that_see_none_send_nothing():
    given = problem(70, 80, 7, 2.0)
    log_mass, log_z = given.log_mass.clone(), given.log_partition.clone()
    log_mass[11] = -math.inf
    log_z[5] = -math.inf
    by_query, by_key = adjoint_by_products(given._replace(log_mass=log_mass, log_partition=log_z), 80)
    assert float(by_query[5].abs().max()) < 1e-200 and float(by_key[11].abs().max()) < 1e-200
    assert bool(torch.isfinite(by_query).all() and torch.isfinite(by_key).all())


def test_the_digits_do_not_depend_on_the_number_of_threads(monkeypatch):
    given = problem(1100, 600, 6, 2.0)
    one = adjoint_by_products(given, 600)

    def in_turn(work, n, **options):
        assert 1 < n <= PIECES
        for start in reversed(range(n)):
            work(start, start + 1)

    monkeypatch.setattr("metastable.attention.direct.adjoint_products.over_rows", in_turn)
    many = adjoint_by_products(given, 600)
    assert all(torch.equal(a, b) for a, b in zip(one, many, strict=True))
