"""The angle of every token to its limit along a run or before it, by comparison and by distance to its orbit."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from metastable.theory.contraction import Push, Symmetric, angle_between
from metastable.theory.oblique import Oblique
from metastable.theory.spectrum import Spectrum
from metastable.theory.stability import propagated

SUBSTEPS = 4
"""Parts of an interval between saved times on which the rate is constant; more of them only sharpen the bound."""
RESOLVED = 1e-4
"""A token this far (in radians) beyond its bound is not explained by the error of a run, 1e-6 and less."""
WORST_BASIS = 1e8
"""Largest condition of the eigenvectors of a non-symmetric M: beyond it their norm has lost half of its digits."""


def comparison(s: Spectrum) -> Symmetric | Oblique | None:
    """The comparison equations for these weights; None where there are none (rotation, Jordan block, identity)."""
    if s.singular or s.kind in ("rotation", "jordan", "identity"):
        return None
    if s.M.symmetric:
        return Symmetric(s)
    if s.dimension > 1:
        return None
    vectors = np.linalg.eig(s.M.matrix.numpy())[1]
    return Oblique(s) if np.linalg.cond(vectors) < WORST_BASIS else None


def token_angles(
    system: Symmetric | Oblique | None,
    start: np.ndarray,
    limit: np.ndarray,
    orbits: np.ndarray,
    steps: np.ndarray,
    pushes: Iterable[Push],
    L0: float,
    run: Iterable[tuple[np.ndarray, np.ndarray]] | None = None,
) -> tuple[np.ndarray, int]:
    """Upper bounds (m, n) of the angle of every token to Pi(x_0) at the ends of the intervals, and how many failed.

    orbits: (m, n), the angles of the zero-temperature orbits. A token is no farther from its limit than its orbit
    is plus what S3 lets it drift from the orbit, and no farther than the comparison equations allow; each time the
    smaller of the two is what both go on with. run: at the ends of the intervals the tokens (n, d) and their
    distances (n,) from their orbits, where they are known. One that is found beyond its bound goes on from where it
    is; by more than the error of a run it shows that its push was not resolved, and is counted.
    """
    state = system.at(start, limit) if system else None
    drift, found = np.zeros(len(start)), np.zeros(len(start), dtype=bool)
    angles, places = [orbits[0]], iter(run) if run is not None else None
    for orbit, interval, push in zip(orbits[1:], steps, pushes, strict=True):
        h = float(interval) / SUBSTEPS
        for _ in range(SUBSTEPS):
            drift = np.minimum(propagated(drift, push.size, L0, h), math.pi)
            if system and state:
                state = system.advance(state, push, h)  # type: ignore[arg-type]
        best = np.minimum(orbit + drift, math.pi)
        if state:
            best = np.minimum(best, state.total)
        if places:
            x, away = next(places)
            seen = angle_between(x, limit)
            beyond, found = seen > best, found | (seen > best + RESOLVED)
            best, drift = np.where(beyond, seen, best), np.where(beyond, np.maximum(drift, away), drift)
            if system and state and beyond.any():
                state = state.replaced(beyond, system.at(x, limit))  # type: ignore[arg-type]
        state = state.lowered(best) if state else None
        drift = np.minimum(drift, best + orbit)
        angles.append(best)
    return np.stack(angles), int(found.sum())


def distance(angles: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """sqrt(sum_i m_i (2 sin(angle_i/2))^2): the chordal W2 that these angles allow."""
    return np.sqrt(((2 * np.sin(np.clip(angles, 0, math.pi) / 2)) ** 2 * mass).sum(-1))
