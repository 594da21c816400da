"""Charts of an ellipsoid of queries: there and back, and the bounds of Fourier coefficients along their circles."""

from __future__ import annotations

import math

import numpy as np
import pytest

from metastable.attention.sphere.ellipsoid import Ellipsoid, smoothness

AXES = ([300.0, 200.0, 20.0], [5.0, 5.0, 0.1], [40.0, 1.0, 1.0], [30.0, 28.0, 25.0])


def surface_of(axes, seed=0):
    frame, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((3, 3)))
    return Ellipsoid(np.array(axes), frame)


def at(surface, stretch, v):
    """(..., 3): z(v), in the frame of the axes."""
    return v * stretch / np.linalg.norm(v * stretch / surface.axes, axis=-1, keepdims=True)


@pytest.mark.parametrize("power", [0.0, 0.5, 0.75, 1.0])
def test_a_chart_and_its_points(power) -> None:
    surface = surface_of([3.0, 2.0, 0.5])
    stretch = surface.stretch(power)
    v = np.random.default_rng(1).standard_normal((50, 3))
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    z = at(surface, stretch, v)
    np.testing.assert_allclose(np.linalg.norm(z / surface.axes, axis=1), 1.0, rtol=1e-13)
    np.testing.assert_allclose(surface.lengths(stretch, v), np.linalg.norm(z, axis=1), rtol=1e-13)
    back = z @ surface.frame @ surface.chart(stretch)
    np.testing.assert_allclose(back / np.linalg.norm(back, axis=1, keepdims=True), v, atol=1e-13)


def test_the_poles_are_not_on_the_axes_that_differ_least() -> None:
    assert Ellipsoid.of(np.array([3.0, 2.0, 0.5]), np.eye(3)).axes.tolist() == [3.0, 2.0, 0.5]
    found = Ellipsoid.of(np.array([3.0, 0.6, 0.5]), np.eye(3))
    assert found.axes.tolist() == [0.6, 0.5, 3.0] and np.array_equal(found.frame, np.eye(3)[[1, 2, 0]])


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize(("power", "soft"), [(0.5, 0.0), (0.5, 2.0), (0.75, 3.0), (1.0, 6.0)])
def test_fourier_coefficients_are_below_their_bounds(axes, power, soft) -> None:
    count = 4096
    x = np.arange(count) * (2.0 * math.pi / count)
    rng = np.random.default_rng(2)
    surface = Ellipsoid.of(np.sort(axes)[::-1], np.eye(3))
    stretch = surface.stretch(power)
    bound = smoothness(surface, stretch, soft).coefficients(600)
    for high in (None, 0.2, 0.9, 1.0):
        for _ in range(4):
            turn = rng.choice([0.0, 0.5 * math.pi, rng.uniform(0.0, math.pi)])
            if high is None:  # through the poles
                v = np.stack((np.sin(x) * math.cos(turn), np.sin(x) * math.sin(turn), np.cos(x)), axis=1)
            else:
                low = np.full(count, math.sqrt(1.0 - high**2))
                v = np.stack((high * np.cos(x + turn), high * np.sin(x + turn), low), axis=1)
            z = at(surface, stretch, v)
            k = z[rng.integers(count)] + rng.standard_normal(3) * rng.choice([0.0, 0.1, 100.0])
            values = np.exp(z @ (k / np.linalg.norm(k)) - np.sqrt((z**2).sum(axis=1) + soft**2))
            found = np.abs(np.fft.rfft(values))[:600] / count
            assert (found <= bound + 1e-15).all()


def test_the_exponent_is_largest_in_the_planes_of_the_axes() -> None:
    """|Re z| - Re h over all places of complex angles, against the few that the bound looks at."""
    rng = np.random.default_rng(3)
    quarter = np.linspace(0.0, 0.5 * math.pi, 25)
    theta, phi = np.meshgrid(quarter, quarter, indexing="ij")
    for _ in range(60):
        surface = Ellipsoid.of(np.sort(10.0 ** rng.uniform(-2.5, 0.0, 3))[::-1], np.eye(3))
        stretch, soft = surface.stretch(rng.choice([0.5, 0.75, 1.0])), rng.choice([0.0, 0.05, 0.3])
        found = smoothness(surface, stretch, soft)
        for i in (5, 50, 90):
            s = found.s[i]
            for v_theta, v_phi in ((theta + 1j * s, phi), (theta, phi + 1j * s)):
                v = np.stack((np.sin(v_theta) * np.cos(v_phi), np.sin(v_theta) * np.sin(v_phi), np.cos(v_theta)), 2)
                low = np.sqrt(v**2 @ (stretch / surface.axes) ** 2)
                top = np.sqrt(v**2 @ (stretch**2 + soft**2 * (stretch / surface.axes) ** 2)) / low
                z = v * stretch / low[..., None]
                rise = np.linalg.norm(z.real, axis=2) - top.real
                assert rise.max() <= found.rise[i] + 1e-12 * surface.axes.max()


def test_the_balanced_chart_is_the_smoothest_one() -> None:
    """b/a = 16, b = 1261: nearly as few modes as for queries of one length; outer charts need twice as many."""
    surface = surface_of([1261.0, 958.0, 80.8])
    needed = [smoothness(surface, surface.stretch(power), 0.0).beyond(1e-15) for power in (0.0, 0.5, 1.0)]
    one = surface_of([1261.0] * 3)
    round_one = smoothness(one, one.stretch(0.5), 0.0).beyond(1e-15)
    assert needed[1] < 1.25 * round_one and min(needed[0], needed[2]) > 1.6 * needed[1]
