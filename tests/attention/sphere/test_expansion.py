"""The local expansion over a box of queries: its value, its derivative, and the bound of what it cuts off."""

from __future__ import annotations

import math

import numpy as np
import pytest

from metastable.attention.sphere.expansion import deviations, evaluate, expand, orders_for


def box(seed, widths):
    """Keys around a reference with weights, a centre, an orthonormal frame, and queries in the box."""
    rng = np.random.default_rng(seed)
    keys = rng.normal(size=(3, 200))
    keys /= np.linalg.norm(keys, axis=0)
    weights = rng.uniform(size=200)
    centre = 4.0 * rng.normal(size=3)
    attention = weights * np.exp(centre @ keys)
    reference = keys @ attention / attention.sum()
    seen = np.vstack([keys - reference[:, None], weights])
    log_floor = math.log((weights * np.exp(centre @ seen[:3])).sum())
    frame = np.ascontiguousarray(np.linalg.qr(rng.normal(size=(3, 3)))[0].T)
    points = centre[:, None] + frame.T @ (widths[:, None] * rng.uniform(-1, 1, size=(3, 40)))
    return seen, centre, frame, reference, log_floor, np.ascontiguousarray(points), keys


@pytest.mark.parametrize("tolerance", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("widths", [(1.0, 0.6, 0.02), (1.5, 1.0, 0.01), (0.25, 0.25, 0.0)])
def test_the_expansion_errs_by_less_than_its_bound(tolerance, widths) -> None:
    widths = np.array(widths)
    seen, centre, frame, reference, log_floor, points, keys = box(3, widths)
    orders, bound = orders_for(seen, centre, frame, widths, log_floor, tolerance)
    assert orders.min() > 0 and bound <= tolerance
    coefficients = expand(seen, 3, centre, frame, widths, log_floor, orders)
    mean, log_partition = np.empty((40, 3)), np.empty(40)
    evaluate(coefficients, orders, points, 0, 40, centre, frame, widths, reference, log_floor, mean, log_partition)
    attention = seen[3] * np.exp(points.T @ keys)
    exact = np.log(attention.sum(axis=1))
    assert np.abs(log_partition - exact).max() <= bound + 1e-13
    # The bound is that of g and of half the mean.
    assert np.linalg.norm(mean - attention @ keys.T / np.exp(exact)[:, None], axis=1).max() <= 2.0 * bound + 1e-12


def test_a_box_that_is_too_wide_has_no_orders() -> None:
    widths = np.array([80.0, 80.0, 80.0])
    seen, centre, frame, _, log_floor, _, _ = box(1, widths)
    assert orders_for(seen, centre, frame, widths, log_floor, 1e-6)[0].tolist() == [0, 0, 0]


def test_deviations_are_standard_deviations_across_the_box() -> None:
    widths = np.array([2.0, 0.5, 0.0])
    seen, centre, frame, _, log_floor, _, _ = box(2, widths)
    weight = seen[3] * np.exp(centre @ seen[:3])
    along = frame[:2] @ seen[:3]
    expected = np.sqrt((weight * along**2).sum(axis=1) / weight.sum()) * widths[:2]
    assert deviations(seen, centre, frame, widths, log_floor) == pytest.approx(expected.max(), rel=1e-12)
