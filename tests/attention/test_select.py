"""The choice of a kernel: total, by what kernels declare and cost, and with facts that are found once."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from attention.attention_reference import tokens
from attention.circle.circle_tokens import MATRICES, circle
from metastable.attention import KERNELS, Operands, attend
from metastable.attention.circle import ellipse
from metastable.attention.direct import WIDE_LIBRARIES
from metastable.attention.select import LEAST_PAIRS, select
from metastable.attention.sphere import plan


def test_auto_names_the_kernel_that_ran():
    small, wide = tokens(300, 3, "uniform", 0), tokens(300, 40, "uniform", 0)
    assert attend(small, small).kernel == "fused"
    assert attend(wide, wide).kernel == "products"
    assert attend(wide.float(), wide.float()).kernel == "sdpa"
    assert attend(wide[:5].float(), wide[:5].float()).kernel == "dense"
    assert attend(small, small, values=wide).kernel == "products"
    many = tokens(2500, 9, "uniform", 0)
    assert attend(many, many).kernel == ("blocks" if WIDE_LIBRARIES else "products")
    assert attend(small, small).error is None


def test_rtol_on_the_sphere_takes_the_grid():
    x = tokens(25_000, 3, "clustered", 0)
    fast = attend(x[:20_000], x, beta=300.0, rtol=1e-7)
    assert fast.kernel == "sphere_grid" and fast.error is not None and fast.error <= 1e-7
    some = attend(x[:50], x, beta=300.0, rtol=1e-7)
    assert some.kernel == "fused" and some.error is None
    assert float((fast.mean[:50] - some.mean).norm(dim=1).max()) <= fast.error


def test_select_is_total():
    """The choice exists for every shape and names a kernel of the table."""
    for d in (1, 2, 3, 8, 9, 64):
        for n in (1, 100, 5000):
            x = torch.zeros(n, d)
            assert select(Operands(x, x, x, torch.ones(n), 1.0), None).name in KERNELS


def test_attend_chooses_the_circle_and_reports_its_error():
    x = circle(5000, "uniform", 0)
    fast, all_digits = attend(x, x, beta=20.0, rtol=1e-8), attend(x, x, beta=20.0)
    assert fast.kernel in ("circle", "nearby") and all_digits.kernel == "fused"
    assert fast.error is not None and fast.error <= 1e-8
    assert float((fast.mean - all_digits.mean).norm(dim=1).max()) <= fast.error
    assert attend(x, 1.1 * x, beta=20.0, rtol=1e-8).kernel == "fused"
    assert attend(x, x, beta=20.0, rtol=1e-14).kernel == "fused"
    assert attend(x[:50], x[:50], beta=20.0, rtol=1e-8).kernel == "fused"
    assert attend(x, x, beta=20.0, kernel="circle").error <= 1e-10


def equal(x, queries=None, beta=8.0):
    mass = torch.full((len(x),), 1 / len(x), dtype=x.dtype)
    return Operands(x if queries is None else queries, x, x, mass, beta)


def test_the_names_of_the_table():
    assert sorted(KERNELS) == [
        "blocks", "circle", "circle_gpu", "dense", "flash_bf16", "flash_fp16", "fused", "gpu_float64",
        "nearby", "products", "sdpa", "sphere", "sphere_grid", "triton",
    ]  # fmt: skip
    assert all(kernel.name == name for name, kernel in KERNELS.items())


def test_a_chosen_kernel_can_what_it_is_chosen_for():
    for d in (2, 3, 5, 12):
        for n in (10, 1200, 3000):
            for rtol in (None, 1e-4, 1e-10, 1e-13):
                asked = equal(tokens(n, d, "uniform", n))
                assert select(asked, rtol).can(asked, rtol)


def test_values_of_their_own_and_keys_off_the_sphere_go_over_all_pairs():
    x = circle(5000, "uniform", 0)
    assert select(equal(x), 1e-8).name in ("circle", "nearby")
    assert select(replace(equal(x), values=x.clone()), 1e-8).name == "fused"
    assert select(equal(1.1 * x), 1e-8).name == "fused"
    assert select(equal(x.float()), 1e-3).name == "fused"
    assert len(x[:900]) ** 2 < LEAST_PAIRS
    assert select(equal(x[:900]), 1e-8).name == "fused"


@pytest.mark.parametrize("matrix", sorted(MATRICES))
def test_the_ellipse_of_the_queries_is_fitted_once_per_call(matrix, monkeypatch):
    calls, fit = [], ellipse.fit_ellipse
    monkeypatch.setattr(ellipse, "fit_ellipse", lambda queries: calls.append(len(queries)) or fit(queries))
    x = circle(60_000, "uniform", 0)
    found = attend(x @ torch.tensor(MATRICES[matrix], dtype=torch.float64), x, beta=20.0, rtol=1e-8)
    assert found.kernel == "circle"
    assert calls == [60_000]


def test_the_grid_is_planned_once_per_call(monkeypatch):
    calls, window = [], plan.lebesgue
    monkeypatch.setattr(plan, "lebesgue", lambda n: calls.append(n) or window(n))
    x = tokens(60_000, 3, "uniform", 2)
    assert attend(x, x, beta=40.0, rtol=1e-9).kernel == "sphere_grid"
    assert len(calls) == 2  # of the keys' and of the queries' grid


def test_a_result_that_misses_its_tolerance_is_computed_over_all_pairs(monkeypatch):
    """The stated error decides, not the forecast."""
    x = circle(5000, "uniform", 0)
    coarse = replace(KERNELS["circle"], function=lambda o, rtol: (o.queries, o.mass, 2 * rtol))
    monkeypatch.setattr("metastable.attention.select._STATED_ERROR", [coarse])
    assert select(equal(x), 1e-8) is coarse
    assert attend(x, x, beta=8.0, rtol=1e-8).kernel == "fused"
