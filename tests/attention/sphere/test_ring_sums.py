"""Rings of nodes that meet rings of targets mode by mode, against all pairs of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ive

from metastable.attention.lanes import LANES
from metastable.attention.sphere.nodes import ring_nodes
from metastable.attention.sphere.ring_sums import ring_sums

RINGS = 12
THETA = (np.arange(RINGS) + 0.5) * (math.pi / RINGS)


def in_groups(numbers):
    """(..., groups, 8): real and imaginary parts of complex numbers (..., c) as columns."""
    columns = np.ascontiguousarray(numbers).view(np.float64)
    wanting = -columns.shape[-1] % LANES
    padded = np.pad(columns, [(0, 0)] * (columns.ndim - 1) + [(0, wanting)])
    return np.ascontiguousarray(padded.reshape(*columns.shape[:-1], -1, LANES))


def from_groups(columns, count):
    """(..., c): the complex numbers."""
    return np.ascontiguousarray(columns).reshape(*columns.shape[:-2], -1).view(np.complex128)[..., :count]


def by_mode(numbers):
    """(M, groups, rings, 8) of complex numbers (rings, c, M)."""
    return np.ascontiguousarray(in_groups(numbers.transpose(2, 0, 1)).transpose(0, 2, 1, 3))


def met(angles, lengths, columns, depth, sent=None):
    """(lines, c, N) sums at targets on the longitudes of the nodes, and (rings, s, N) of what they send back."""
    modes = by_mode(np.fft.rfft(columns)[..., :RINGS])
    count, back = columns.shape[1], 0 if sent is None else sent.shape[1]
    told = np.empty((len(lengths), RINGS, 0, LANES))
    if sent is not None:
        told = in_groups(np.fft.rfft(sent)[..., :RINGS].transpose(0, 2, 1))
    out = np.full((len(lengths), RINGS, modes.shape[1], LANES), np.nan)
    received = np.zeros((RINGS, told.shape[2], RINGS, LANES))
    ring_sums(angles, lengths, THETA, modes, depth, out, told, received)
    sums = np.fft.irfft(from_groups(out, count).transpose(0, 2, 1), n=2 * RINGS, norm="forward")
    heard = from_groups(received.transpose(2, 0, 1, 3), back).transpose(0, 2, 1)
    return sums, np.fft.irfft(heard, n=2 * RINGS, norm="forward")


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
@pytest.mark.parametrize(("count", "back"), [(3, 2), (5, 6)])
def test_sums_at_targets_and_back_are_those_of_all_pairs(blocks, count, back) -> None:
    rng = np.random.default_rng(blocks)
    lines = blocks * LANES
    angles, lengths = rng.uniform(0.0, math.pi, lines), rng.uniform(0.0, 3.0, lines)
    angles[0], lengths[1] = 1e-3, 0.0
    columns, sent = smooth(rng, RINGS, count), smooth(rng, lines, back)
    sums, heard = met(angles, lengths, columns, 100.0, sent)
    kernel = pairs(angles, lengths)
    expected = np.einsum("lnb,bc->lcn", kernel, columns.transpose(0, 2, 1).reshape(-1, count))
    np.testing.assert_allclose(sums, expected, rtol=0.0, atol=1e-12)
    expected = np.einsum("lnb,lsn->bs", kernel, sent).reshape(RINGS, 2 * RINGS, back).transpose(0, 2, 1)
    np.testing.assert_allclose(heard, expected, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("depth", [1.0, 2.0, 5.0, 10.0])
@pytest.mark.parametrize("length", [1.0, 8.0, 40.0])
def test_weights_err_by_the_depth_at_most(depth, length) -> None:
    """One node after the other, with nodes and modes left out against none."""
    angles, lengths = np.linspace(0.1, 1.5, LANES), np.full(LANES, length)
    left_out = 0.0
    for ring in range(RINGS):
        columns = np.zeros((RINGS, 1, 2 * RINGS))
        columns[ring, 0, 0] = 1.0
        far, near = met(angles, lengths, columns, 500.0)[0], met(angles, lengths, columns, depth)[0]
        assert np.abs(far - near).max() <= math.exp(-depth) + 1e-14
        left_out = max(left_out, np.abs(far - near).max())
    assert left_out > 0.0 or length * 2.0 < depth + 1.0


def test_every_mode_is_a_bessel_function() -> None:
    """One node on the equator and targets there: the modes of the sum are e^{-r} I_m(r), as SciPy has them."""
    r = np.array(
        [1e-280, 0.01, 1.0, 3.0, 40.0, 700.0, 5e4, 0.0, 1e-41, 1e-39, 1e-3, 1.001e-3, 1e-9, 1e-6, 0.1, 9.0]
    )
    modes = by_mode(np.ones((1, 1, 64), dtype=np.complex128))
    out, nothing = np.empty((len(r), 64, 1, LANES)), np.empty((len(r), 64, 0, LANES))
    half = np.array([0.5 * math.pi])
    ring_sums(np.repeat(half, len(r)), r, half, modes, 99.0, out, nothing, np.empty((64, 0, 1, LANES)))
    expected = ive(np.arange(64), r[:, None])
    np.testing.assert_allclose(out[:, :, 0, 0], expected, rtol=3e-14, atol=1e-16)
    assert not out[..., 1:].any()
