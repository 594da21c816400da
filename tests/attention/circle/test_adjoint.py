"""The transpose of attention on the circle by Fourier series, against all pairs."""

import math

import pytest
import torch

from metastable.attention.backwards import Backwards
from metastable.attention.circle.adjoint import MOST_MODES, PIECES, ROUNDING, circle_adjoint, modes
from metastable.attention.direct import adjoint_over_pairs


def problem(n, sharp, seed, spread=None, turned=0.0, shifted=True):
    """Queries sharp B^T y of tokens y on the circle, in clusters of a spread or anywhere; what they attend to."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=draw)

    angle = 2 * math.pi * torch.rand(n, dtype=torch.float64, generator=draw)
    if spread is not None:
        angle = 2.0 * torch.round(angle / 2) + spread * normal(n)
    keys = torch.stack([angle.cos(), angle.sin()], dim=1)
    turn = torch.tensor([[math.cos(turned), math.sin(turned)], [-math.sin(turned), math.cos(turned)]])
    queries = sharp * keys @ (turn.double() + 0.2 * normal(2, 2)) + 0.3 * normal(2)
    mass = torch.rand(n, dtype=torch.float64, generator=draw) + 0.1
    log_mass = torch.log(mass / mass.sum())
    scores = queries @ keys.T + log_mass
    cotangent = normal(n, 2)
    mean = torch.softmax(scores, 1) @ keys
    shift = (cotangent * mean).sum(1) if shifted else torch.zeros(n).double()
    return Backwards(queries, keys, log_mass, torch.logsumexp(scores, 1), cotangent, shift, mean)


def along(keys, vectors):
    """Their parts along the circle."""
    return keys[:, 0] * vectors[:, 1] - keys[:, 1] * vectors[:, 0]


def worst(given, count):
    """Largest errors of (r by_query, by_key), beside sums of the absolute values of their terms."""
    queries, keys, log_mass, _, g, s, _ = given
    found, expected = circle_adjoint(given, count), adjoint_over_pairs(given)
    longest, sizes = float(queries.norm(dim=1).max()), g.norm(dim=1) + s.abs()
    weights = torch.softmax(queries @ keys.T + log_mass, 1)
    terms = float((weights.T @ sizes).max())
    by_query = (1 + longest) * (found[0] - expected[0]).norm(dim=1) / sizes
    by_key = along(keys, found[1] - expected[1]).abs() / (1 + longest) / terms
    assert float((found[1] * keys).sum(1).abs().max()) < 1e-12 * terms * (1 + longest)
    return max(float(by_query.max()), float(by_key.max()))


@pytest.mark.parametrize("rtol", [1e-10, 1e-7, 1e-4])
@pytest.mark.parametrize(
    ("n", "sharp", "spread", "turned"),
    [
        (200, 8.0, None, 0.0),
        (133, 0.0, None, 0.0),
        (150, 60.0, 0.05, 0.0),
        (300, 1.0, 1e-4, 1.5),
        (500, 300.0, None, 0.0),
    ],
)
def test_it_is_the_transpose_to_its_tolerance(n, sharp, spread, turned, rtol):
    for seed, shifted in [(0, True), (1, False)]:
        given = problem(n, sharp, seed, spread, turned, shifted)
        count = modes(given[0], given[2], given[3], rtol)
        if count is None:
            # Rounding alone: e^{r - log Z} times a few eps for each unit of r.
            lost = float((given[0].norm(dim=1) - given[3]).max())
            assert math.exp(lost) * ROUNDING * (1 + sharp) > 0.3 * rtol
            continue
        assert worst(given, count) < rtol


@pytest.mark.parametrize("sharp", [4.0, 60.0, 1000.0])
def test_rounding_is_a_fourth_of_the_constant(sharp):
    for seed in range(3):
        given = problem(400, sharp, seed)
        longest, lost = (float(x.max()) for x in (given[0].norm(dim=1), given[0].norm(dim=1) - given[3]))
        many = min(int(12 * math.sqrt(1 + longest)) + 40, MOST_MODES)
        assert worst(given, many) < 0.25 * ROUNDING * (1 + longest) * math.exp(lost)


def test_queries_that_look_away_from_all_keys_are_refused():
    given = problem(200, 40.0, 0, spread=0.01, turned=1.0)
    assert modes(given[0], given[2], given[3], 1e-10) is None
    assert modes(30000.0 * given[0], given[2], 30000.0 * given[0].norm(dim=1), 1e-2) is None


def test_scaled_masses_and_the_order_of_pieces_change_nothing(monkeypatch):
    given = problem(400, 8.0, 3)
    queries, _, log_mass, log_z, *_ = given
    count = modes(queries, log_mass, log_z, 1e-10)
    assert count == modes(queries, log_mass + 500.0, log_z + 500.0, 1e-10)
    one = circle_adjoint(given, count)
    scaled = circle_adjoint(given._replace(log_mass=log_mass + 500.0, log_partition=log_z + 500.0), count)
    assert all(float((a - b).abs().max()) < 1e-11 for a, b in zip(one, scaled, strict=True))

    def in_turn(work, n, **options):
        for start in reversed(range(n)):
            work(start, start + 1)

    monkeypatch.setattr("metastable.attention.circle.adjoint.over_rows", in_turn)
    again = circle_adjoint(given, count)
    assert all(bool((a == b).all()) for a, b in zip(one, again, strict=True)) and PIECES > 1
