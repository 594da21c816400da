"""Rings of fewer nodes near the poles, and the levels of an ellipsoid."""

import math

import numpy as np
import torch

from attention.sphere.sphere_tokens import tokens
from metastable.attention.operands import Operands
from metastable.attention.sphere.layout import (
    along_rings,
    chart_nodes,
    depth,
    fewer,
    level_nodes,
    levels,
    sum_of_sizes,
)
from metastable.attention.sphere.plan import plan, surface


def laid(axes):
    keys = tokens("uniform", 400, 0)
    B = torch.diag(torch.tensor(axes, dtype=torch.float64))
    operands = Operands(keys @ B, keys, keys, torch.full((400,), 1 / 400).double(), 1.0)
    return surface(operands).ellipsoid, plan(operands, 1e-8)


def test_nodes_of_the_chart_lie_on_the_ellipsoid_each_in_one_level():
    where, grids = laid([4.0, 9.0, 60.0])
    chart = chart_nodes(where, grids)
    assert len(grids.levels) > 1 and chart.counts.max() <= grids.coarse_queries
    np.testing.assert_allclose(np.linalg.norm(where.chart(1.0, chart.targets), axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(chart.targets, axis=1), chart.lengths, rtol=1e-12)
    seen = np.concatenate([rows for rows, *_ in levels(chart, grids)])
    assert sorted(seen) == list(range(chart.counts.sum())) == sorted(chart.order)
    for rows, above, (longest, _) in levels(chart, grids):
        assert (chart.lengths[rows] > above).all() and (chart.lengths[rows] <= longest * (1 + 1e-12)).all()


def test_fewer_nodes_keep_the_modes_that_they_tell_apart():
    rng = np.random.default_rng(0)
    weights, counts = rng.standard_normal((3, 2, 16)), np.array([6, 16, 8])
    few = fewer(weights, counts)
    for ring, count in enumerate(counts):
        kept, all_modes = np.fft.rfft(few[ring, :, :count]), np.fft.rfft(weights[ring])
        np.testing.assert_allclose(kept[:, : count // 2], all_modes[:, : count // 2], atol=1e-12)
        assert not few[ring, :, count:].any()


def test_rings_of_fewer_nodes_are_transformed_as_if_they_had_all():
    counts = np.array([6, 16])
    sums = np.concatenate([1.0 + np.cos(2 * math.pi / c * np.arange(c) * 2) for c in counts])[:, None]
    along = along_rings(sums, counts, 16)
    expected = np.fft.rfft(1.0 + np.cos(2 * math.pi / 16 * np.arange(16) * 2))
    np.testing.assert_allclose(along[:, 0], np.stack((expected, expected)), atol=1e-12)


def test_larger_weights_reach_further_and_need_more_nodes():
    _, grids = laid([1.0, 2.0, 3.0])
    small = np.abs(np.random.default_rng(1).standard_normal((20, 1, 40)))
    assert sum_of_sizes(small) == np.abs(small).sum()
    assert depth(1e6, grids) == depth(1.0, grids) + math.log(1e6)
    few, many = (level_nodes(weights, 3.0, grids)[0].counts for weights in (small, 1e6 * small))
    assert (few <= many).all() and few.sum() < many.sum()
