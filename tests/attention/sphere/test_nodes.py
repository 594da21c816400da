"""Rings of nodes that meet rings of targets mode by mode, against all pairs of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ive

from metastable.attention.sphere.nodes import BLOCK, radii, ring_nodes, ring_sums, shares, with_sizes

RINGS = 12
THETA = (np.arange(RINGS) + 0.5) * (math.pi / RINGS)


def met(angles, lengths, columns, depth, sent=None):
    """(lines, c, N) sums at targets on the longitudes of the nodes, and (rings, s, N) of what they send back."""
    modes = np.fft.rfft(columns)[..., :RINGS]
    modes = np.ascontiguousarray(np.stack((modes.real, modes.imag), axis=2).transpose(3, 1, 2, 0))
    count, back = columns.shape[1], 0 if sent is None else sent.shape[1]
    out = np.empty((len(lengths), count, RINGS, 2))
    told = np.zeros((len(lengths), back, RINGS, 2))
    if sent is not None:
        told.view(np.complex128)[..., 0] = np.fft.rfft(sent)[..., :RINGS]
    received = np.zeros((RINGS, back, 2, RINGS))
    ring_sums(count, back)(angles, lengths, THETA, modes, depth, out, told, received)
    sums = np.fft.irfft(out.view(np.complex128)[..., 0], n=2 * RINGS, norm="forward")
    heard = np.fft.irfft((received[:, :, 0] + 1j * received[:, :, 1]).T, n=2 * RINGS, norm="forward")
    return sums, heard


def pairs(angles, lengths):
    """(lines, N, nodes): e^{<z, k> - |z|} of targets on the longitudes of the nodes."""
    phi = np.arange(2 * RINGS) * (math.pi / RINGS)
    high, low = np.sin(angles)[:, None], np.cos(angles)[:, None]
    u = np.stack((high * np.cos(phi), high * np.sin(phi), low + 0.0 * phi), axis=2)
    k = ring_nodes(RINGS).transpose(0, 2, 1).reshape(-1, 3)
    return np.exp(lengths[:, None, None] * (u @ k.T - 1.0))


def smooth(rng, *shape):
    """Weights along rings without the modes that rings of that many nodes do not tell apart for r < 3."""
    modes = rng.standard_normal((*shape, 4)) + 1j * rng.standard_normal((*shape, 4))
    return np.fft.irfft(modes, n=2 * RINGS)


@pytest.mark.parametrize("blocks", [1, 3])
def test_sums_at_targets_and_back_are_those_of_all_pairs(blocks) -> None:
    rng = np.random.default_rng(blocks)
    lines = blocks * BLOCK
    angles, lengths = rng.uniform(0.0, math.pi, lines), rng.uniform(0.0, 3.0, lines)
    angles[0], lengths[1] = 1e-3, 0.0
    columns, sent = smooth(rng, RINGS, 3), smooth(rng, lines, 2)
    sums, heard = met(angles, lengths, columns, 100.0, sent)
    kernel = pairs(angles, lengths)
    expected = np.einsum("lnb,bc->lcn", kernel, columns.transpose(0, 2, 1).reshape(-1, 3))
    np.testing.assert_allclose(sums, expected, rtol=0.0, atol=1e-12)
    expected = np.einsum("lnb,lsn->bs", kernel, sent).reshape(RINGS, 2 * RINGS, 2).transpose(0, 2, 1)
    np.testing.assert_allclose(heard, expected, rtol=0.0, atol=1e-12)


def test_nodes_below_the_depth_need_not_count() -> None:
    rng = np.random.default_rng(5)
    angles, lengths = np.full(BLOCK, 0.4), np.full(BLOCK, 40.0)
    columns = np.abs(smooth(rng, RINGS, 1))
    far, near = met(angles, lengths, columns, 200.0)[0], met(angles, lengths, columns, 5.0)[0]
    assert 0.0 < np.abs(far - near).max() <= math.exp(-5.0) * columns.sum()


def test_every_mode_is_a_bessel_function() -> None:
    """One node on the equator and targets there: the modes of the sum are e^{-r} I_m(r), as SciPy has them."""
    r = np.array([1e-280, 0.01, 1.0, 3.0, 40.0, 700.0, 5e4, 0.0])
    modes = np.zeros((64, 1, 2, 1))
    modes[:, 0, 0] = 1.0
    out, nothing = np.empty((len(r), 1, 64, 2)), np.empty((len(r), 0, 64, 2))
    half = np.array([0.5 * math.pi])
    ring_sums(1, 0)(np.repeat(half, len(r)), r, half, modes, 99.0, out, nothing, np.empty((64, 0, 2, 1)))
    expected = ive(np.arange(64), r[:, None])
    np.testing.assert_allclose(out[:, 0, :, 0], expected, rtol=3e-14, atol=1e-16)
    assert not out[..., 1].any()


@pytest.mark.parametrize(("ratio", "rest"), [(1.0, 1e-9), (1.3, 1e-9), (3.0, 1e-13), (30.0, 1e-6)])
def test_sums_at_all_lengths_follow_from_a_few(ratio, rest) -> None:
    high = np.array([ratio, ratio**0.3])
    between = radii(np.ones(2), high, rest)
    lengths = np.linspace(np.ones(2), high, 101, axis=1)
    factors = shares(lengths, between.shape[1])
    x = np.geomspace(0.01, 60.0, 40)[:, None, None]
    found = np.einsum("xaj,ajn->xan", np.exp(-x * between), factors)
    error = np.abs(found - np.exp(-x * lengths)).max()
    assert error <= rest + 1e-14
    count = between.shape[1]
    assert (count == 1 and ratio == 1.0) or error > 1e-3 * rest  # not far more than asked


def test_columns_of_other_values_have_the_largest_size_at_last() -> None:
    weights = np.random.default_rng(0).standard_normal((3, 2, 4))
    found = with_sizes(weights, np.empty((3, 3, 4)))
    assert np.array_equal(found[:, :2], weights) and np.allclose(found[:, 2], np.linalg.norm(weights, axis=1))
