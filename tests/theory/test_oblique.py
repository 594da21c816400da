import math

import numpy as np
import pytest

import metastable as ms
from metastable.theory import spectrum
from metastable.theory.oblique import Oblique


def test_angles_of_an_oblique_cone():
    """The largest angle between e + z and e, by brute force over z in ker Q with |z| <= rho."""
    for V in (np.array([[2.0, 1.5], [0.0, 1.0]]), np.array([[2.0, 1.5, 0.0], [0.0, 1.0, 0.3], [0.0, 0.0, 0.5]])):
        system = Oblique(spectrum(ms.AttentionWeights(V=V, B=np.eye(len(V)))))
        span = np.linalg.svd(system.left[None])[2][1:]
        around = np.linspace(0, 2 * math.pi, 721)
        ring = np.stack([np.cos(around), np.sin(around)], axis=1)[:, : len(span)] @ span
        for rho in (0.1, 0.5, 0.9, 3.0):
            y = system.e + (np.linspace(0, rho, 301)[:, None, None] * ring).reshape(-1, len(V))
            angles = np.arccos(np.clip(y @ system.e / np.linalg.norm(y, axis=1), -1, 1))
            assert float(system.angle(np.array(rho))) == pytest.approx(angles.max(), abs=2e-4)
    assert float(system.angle(np.array(np.inf))) == math.pi


def test_rho_of_tokens():
    """No smaller than |w|/|a|, infinite across the separatrix, and decaying at zero temperature."""
    w = ms.AttentionWeights(V=np.array([[2.0, 1.5, 0.0], [0.0, 1.0, 0.3], [0.0, 0.0, 0.5]]), B=np.eye(3))
    system = Oblique(spectrum(w))
    x0 = ms.sphere.uniform(50, 3, seed=1)
    limit = ms.theory.limit_map(w)(x0).numpy()
    start = system.at(x0.numpy(), limit)
    a = x0.numpy() @ system.left
    rest = x0.numpy() - a[:, None] * system.e
    assert (np.linalg.norm(rest, axis=1) / np.abs(a) <= start.rho * (1 + 1e-12)).all()
    assert np.isinf(system.at(-x0.numpy(), limit).rho).all()
    later = system.at(ms.theory.zero_temperature(w, x0, 1.0).numpy(), limit)
    assert (later.rho <= start.rho * math.exp(-1.0) * (1 + 1e-9)).all()  # B = I, gap 1
