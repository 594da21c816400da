"""How much closer the lines of a bundle have to be, and where, read off a run on fewer of them.

    F(s) = integral of x_t rho_0 over the line at s,   F = int A e^{-delta k} cos k(s - s_0) dk  at a feature
The mean over n lines h apart errs by the modes at 2 pi/h, so that (2 pi/n) A e^{-2 pi delta/h} < eps tells h.
A and delta are local: soft attention switches from its neighbourhood to a far cluster over a front of width 1/beta,
which the flow then tears open; F keeps it at the lines that it has met, and is as smooth as the law elsewhere.
They are found from the differences of order q with stride 1 and 2, which see a mode at omega = k h through
sin^q(omega/2) and sin^q(omega): at s_0 they are A int e^{-delta omega/h} sin^q(.) domega.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from metastable.meanfield.bundle import Bundle
from metastable.meanfield.longitudes import Crowded, Grading
from metastable.meanfield.panel_run import Accuracy, FlowMap
from metastable.meanfield.piecewise import Array

ORDER = 6
"""Order of the differences: lower ones see what is smooth as well, higher ones reach over more lines."""
AROUND = 3
"""Lines on either side over which the largest difference is taken: as many as a difference reaches."""
MOST = 5.0
"""Largest factor at once: lines so far apart do not know how sharp a feature is. Then comes another pilot."""
SMOOTH = 2.0
"""Standard deviation, in lines, of the Gaussian that smooths the factor: its modes at Nyquist are e^{-20}."""
PILOT_WIDTH = 6.0
"""Width of the panels of a pilot, as in the first of the runs that count (`agreement`)."""
NOISE = 0.02
"""Share of the mass that a pilot may misplace that its panels do (`_BundleRun.room_to_halve`)."""
MOST_PILOTS = 3
"""Most pilots; one is enough where its lines see how sharp a feature is."""
ENOUGH = 1.3
"""Factor that lines may miss: a bundle of a third as many more comes anyhow."""

_DECAY: Array = np.geomspace(0.02, 8.0, 200)
"""delta/h: below the first, a feature is between two lines; beyond the last, one in three would do."""
_OMEGA: Array = 2 * np.pi * (np.arange(400) + 0.5) / 400
_SEEN: Array = np.stack(
    [
        np.log(
            (np.exp(-_DECAY[:, None] * _OMEGA) * np.sin(_OMEGA * stride / 2) ** ORDER).sum(axis=1)
            * (_OMEGA[1] - _OMEGA[0])
            / -np.expm1(-2 * np.pi * _DECAY)
        )
        for stride in (1, 2)
    ]
)
"""Logarithms of the two integrals over all omega > 0; the sines repeat after 2 pi."""


def needed(values: Array, eps: float, noise: float = 0.0) -> Array:
    """By how much closer (n,) n equispaced places of a circle should be, so that means over them are right to eps
    for every row of values (r, n), each known to `noise`; 0 where no row has more than either at the largest wave
    number of the places."""
    fine, coarse = (_around(_differences(values, stride)) for stride in (1, 2))
    fine_log, coarse_log = (np.log(np.maximum(x, 1e-300)) for x in (fine, coarse))
    decay = np.interp(coarse_log - fine_log, _SEEN[1] - _SEEN[0], _DECAY)
    amplitude = fine_log - np.interp(decay, _DECAY, _SEEN[0])
    wanted = (amplitude + np.log(2 * np.pi / values.shape[1] / eps)) / (2 * np.pi * decay)
    return np.asarray(np.where(fine > max(eps, noise), wanted, 0.0).max(axis=0))


def crowding(bundle: Bundle, found: FlowMap, eps: float, noise: float = 0.0) -> Array:
    """`needed` of the lines of a bundle, for the mean of x over each of them at all times of a run."""
    lines = len(bundle.longitudes)
    rows = []
    for frame in found.frames:
        moved = np.einsum("kj,kji->ki", bundle.mass(frame.panels), frame.theta)
        line = frame.panels.root // bundle.cells
        rows += [lines * np.bincount(line, moved[:, i], minlength=lines) for i in range(3)]
    return needed(np.array(rows), eps, noise)


def factor(wanted: Array) -> tuple[float, ...]:
    """Factors between 1 and MOST for `longitudes.Crowded`, smooth from line to line."""
    logs = np.log(np.clip(wanted, 1.0, MOST))
    wave = 2 * np.pi * np.fft.rfftfreq(len(logs))
    smooth = np.fft.irfft(np.fft.rfft(logs) * np.exp(-0.5 * (SMOOTH * wave) ** 2), len(logs))
    return tuple(np.exp(smooth).tolist())


def crowded(
    grading: Grading | Crowded,
    pilot: Callable[[Grading | Crowded, Accuracy], tuple[Bundle, FlowMap]],
    eps: float,
    mass: float,
) -> Grading | Crowded:
    """The grading with lines closer where pilots, which may misplace `mass`, say that they are too far apart."""
    accuracy = Accuracy.within(mass, PILOT_WIDTH)
    for _ in range(MOST_PILOTS):
        bundle, found = pilot(grading, accuracy)
        wanted = crowding(bundle, found, eps, NOISE * accuracy.mass)
        if found.unresolved or wanted.max() <= ENOUGH:
            break
        grading = Crowded(grading, factor(wanted))
        if wanted.max() <= MOST:
            break
    return grading


def _differences(values: Array, stride: int) -> Array:
    for _ in range(ORDER):
        values = np.roll(values, -stride, axis=1) - values
    return np.asarray(np.abs(np.roll(values, stride * ORDER // 2, axis=1)) / 2**ORDER)


def _around(values: Array) -> Array:
    return np.max([np.roll(values, shift, axis=1) for shift in range(-AROUND, AROUND + 1)], axis=0)
