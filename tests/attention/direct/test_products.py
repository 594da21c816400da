"""The kernel of two products: scores with and without a shift, masses of any ratio that it takes."""

from __future__ import annotations

import pytest
import torch

from attention.attention_reference import LAYOUTS, check, check_many_blocks, masses, tokens
from metastable.attention import Operands, attend
from metastable.attention.direct import PRODUCTS, matrix_product, products
from metastable.attention.direct.products import LARGEST_SCORE, MOST_MASS_RATIO
from metastable.errors import InvalidInput


@pytest.mark.parametrize("beta", [0.0, 1.0, 64.0, 3e3, 1e6])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_many_blocks_of_keys(beta, layout):
    check_many_blocks(PRODUCTS, 20, torch.float64, beta, layout)


@pytest.mark.parametrize("beta", [0.5 * LARGEST_SCORE, 0.999 * LARGEST_SCORE, 1.001 * LARGEST_SCORE, 600.0])
@pytest.mark.parametrize("direction", [1.0, -1.0])
def test_scores_on_both_sides_of_the_limit(beta, direction):
    """Rows whose scores are all large, or all very negative, keep their digits."""
    x = tokens(40, 12, "clustered", 0)
    q = direction * x
    check(PRODUCTS(Operands(q, x, x, masses(40, 1), beta)), q, x, x, masses(40, 1), beta)


@pytest.mark.parametrize("beta", [10.0, 0.999 * LARGEST_SCORE, 2000.0])
def test_masses_of_the_largest_ratio(beta):
    x = tokens(30, 10, "uniform", 2)
    mass = torch.logspace(0, -99, 30, dtype=torch.float64)
    check(PRODUCTS(Operands(x, x, x, mass, beta)), x, x, x, mass, beta)
    with pytest.raises(InvalidInput, match="takes masses whose ratios are up to 1e"):
        PRODUCTS(Operands(x, x, x, torch.where(mass < 1e-90, 0.1 / MOST_MASS_RATIO, mass), beta))


def test_single_precision_is_refused():
    x = tokens(7, 5, "uniform", 0).float()
    with pytest.raises(InvalidInput, match='kernel="products" computes in float64, got float32'):
        PRODUCTS(Operands(x, x, x, torch.ones(7), 1.0))


def test_no_queries_have_no_attention():
    x = tokens(7, 5, "uniform", 0)
    found = PRODUCTS(Operands(x[:0], x, x, torch.ones(7, dtype=torch.float64), 1.0))
    assert found.mean.shape == (0, 5) and found.log_partition.shape == (0,)


@pytest.mark.parametrize("n", [1, 47, 130, 300])
def test_queries_that_are_the_keys_have_every_score_once(n, monkeypatch):
    """The upper triangle and its mirror give what all rows give, for any number of blocks and of threads."""
    x, mass = tokens(n, 40, "off-sphere", n), masses(n, 2)
    every = PRODUCTS(Operands(x.clone(), x, x, mass, 3.0))
    monkeypatch.setattr(products, "MOST_SYMMETRIC", 200)
    assert products.every_score_once(n, 40) == (n < 300)
    monkeypatch.setattr(products, "SYMMETRIC_BEYOND", 1)
    once = PRODUCTS(Operands(x, x, x, mass, 3.0))
    check(once, x, x, x, mass, 3.0)
    torch.testing.assert_close(once.mean, every.mean, rtol=0, atol=1e-14)
    torch.testing.assert_close(once.log_partition, every.log_partition, rtol=0, atol=1e-13)


@pytest.mark.parametrize("beta", [1.0, 20.0, 40.0, 60.0, 200.0, 3e3])
@pytest.mark.parametrize("order", ["grouped", "mixed"])
def test_tiles_of_keys_that_no_row_needs_are_left_out(beta, order):
    """Groups of tokens far from each other, one after the other or among each other; some rows need two tiles."""
    groups = tokens(4, 24, "uniform", 3).repeat_interleave(200, dim=0)
    x = torch.nn.functional.normalize(groups + 0.05 * tokens(800, 24, "uniform", 4), dim=1)
    if order == "mixed":
        x = x[torch.randperm(800, generator=torch.Generator().manual_seed(0))]
    q, m = x[::3].clone(), masses(800, 1)
    found = PRODUCTS(Operands(q, x, x, m, beta))
    check(found, q, x, x, m, beta)
    lone = q.clone()
    lone[5] = -lone[5]
    check(PRODUCTS(Operands(lone, x, x, m, beta)), lone, x, x, m, beta)


def test_scores_of_many_tokens_are_not_all_held(monkeypatch):
    """Half of the scores mirror the other half; to hold them would be n^2 numbers."""
    asked = []
    monkeypatch.setattr(products, "kept_room", lambda size: asked.append(size) or matrix_product.kept_room(size))
    monkeypatch.setattr(products, "MOST_AT_ONCE", 10_000)
    for n, held in ((100, True), (101, False)):
        x = tokens(n, 130, "uniform", 0)
        found = attend(x, x, beta=2.0, kernel="products")
        check(found, x, x, x, torch.full((n,), 1 / n, dtype=torch.float64), 2.0)
        assert bool(asked) is held
        asked.clear()
