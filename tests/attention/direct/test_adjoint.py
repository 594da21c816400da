"""The transpose of the derivative of attention against torch's own, for every path and mask."""

import math

import pytest
import torch

from metastable.attention.backwards import Backwards
from metastable.attention.direct.adjoint import PIECES, _blocks, _fused, adjoint_over_pairs
from metastable.threads import over_rows


def problem(n, d, sharp=3.0, seed=0, masses=True):
    """Queries, keys, logarithms of masses, cotangents."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=draw)

    keys = normal(n, d)
    keys = keys / keys.norm(dim=1, keepdim=True)
    mass = torch.rand(n, dtype=torch.float64, generator=draw) + 0.1 if masses else torch.ones(n).double()
    return sharp * normal(n, d) / math.sqrt(d), keys, torch.log(mass / mass.sum()), normal(n, d)


def attended(queries, keys, log_mass, ahead):
    """(means, log Z), dense, as torch differentiates it."""
    n = len(keys)
    scores = queries @ keys.T + log_mass
    if ahead is not None:
        number = torch.arange(n)
        scores = torch.where(number < number[:, None] + ahead, scores, -math.inf)
    seen = scores.amax(1) > -math.inf
    log_z = torch.logsumexp(torch.where(seen[:, None], scores, 0.0), 1)
    mean = torch.softmax(torch.where(seen[:, None], scores, 0.0), 1) @ keys
    return torch.where(seen[:, None], mean, 0.0), torch.where(seen, log_z, -math.inf)


def by_torch(queries, keys, log_mass, cotangent, shift, ahead):
    """The transpose applied to (g, -s) as cotangents of (Z mean/Z0, ...): sums over pairs, written out."""
    _, log_z = attended(queries, keys, log_mass, ahead)
    q, k = queries.clone().requires_grad_(), keys.clone().requires_grad_()
    mean, new_log_z = attended(q, k, log_mass, ahead)
    seen = log_z > -math.inf
    # d(Z mean)/Z0 = sum_j p_ij (...) y_j: the unnormalised sum over the partition of the point itself.
    ratio = torch.exp(torch.where(seen, new_log_z - log_z, 0.0))
    number = (cotangent * mean * ratio[:, None]).sum() - (shift * torch.where(seen, new_log_z, 0.0)).sum()
    found = torch.autograd.grad(number, (q, k))
    return found, log_z


@pytest.mark.parametrize("ahead", [None, 0, 1])
@pytest.mark.parametrize(("n", "d"), [(1, 2), (5, 2), (70, 3), (1100, 2), (40, 8), (33, 9), (600, 20)])
def test_both_paths_are_torch_s_transpose(n, d, ahead):
    queries, keys, log_mass, g = problem(n, d, seed=n + d)
    shift = torch.randn(n, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    (expected_q, expected_k), log_z = by_torch(queries, keys, log_mass, g, shift, ahead)
    paths = [adjoint_over_pairs, lambda given, ahead: _blocks(given, n if ahead is None else ahead)]
    for path in paths:
        by_query, by_key = path(Backwards(queries, keys, log_mass, log_z, g, shift, g), ahead)
        scale = float(g.abs().max()) * (1 + float(queries.abs().max()))
        assert float((by_query - expected_q).abs().max()) < 1e-13 * scale * math.sqrt(n)
        assert float((by_key - expected_k).abs().max()) < 1e-13 * scale * math.sqrt(n)


def test_sharp_scores_and_keys_without_mass():
    queries, keys, log_mass, g = problem(50, 2, sharp=3000.0)
    log_mass[7] = -math.inf
    mean, log_z = attended(queries, keys, log_mass, None)
    shift = (g * mean).sum(1)
    (expected_q, expected_k), _ = by_torch(queries, keys, log_mass, g, shift, None)
    for path in (_fused, _blocks):
        by_query, by_key = path(Backwards(queries, keys, log_mass, log_z, g, shift, g), 50)
        assert float((by_query - expected_q).abs().max()) < 1e-9
        assert float((by_key - expected_k).abs().max()) < 1e-9 * 3000
        assert float(by_key[7].abs().max()) == 0.0 or float(by_key[7].abs().max()) < 1e-200


def test_the_digits_do_not_depend_on_the_number_of_threads(monkeypatch):
    queries, keys, log_mass, g = problem(900, 3)
    mean, log_z = attended(queries, keys, log_mass, None)
    shift = (g * mean).sum(1)
    one = _fused(Backwards(queries, keys, log_mass, log_z, g, shift, g), 900)

    def in_turn(work, n, **options):
        for start in reversed(range(n)):
            work(start, start + 1)

    monkeypatch.setattr("metastable.attention.direct.adjoint.over_rows", in_turn)
    many = _fused(Backwards(queries, keys, log_mass, log_z, g, shift, g), 900)
    assert all(bool((a == b).all()) for a, b in zip(one, many, strict=True))
    assert over_rows is not in_turn and PIECES > 1
