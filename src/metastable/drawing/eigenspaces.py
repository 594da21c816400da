"""What `theory.spectrum` found of a pair of weights, as figures."""

from __future__ import annotations

import numpy as np

from metastable.arguments import instance
from metastable.drawing.figures import Axis, Eigenvalues, Spectra
from metastable.theory import Spectrum

CONCENTRATED, TERMINAL = 1, 2
"""Phases in the order of `PhaseMap.labels`: tokens go to the dominant space of M, then to that of V."""


def spectra(spectrum: Spectrum, title: str = "Spectra of M = V Bᵀ and of V") -> Spectra:
    """Eigenvalues of M = V B^T and of V in the complex plane.

    >>> from metastable import AttentionWeights, theory
    >>> w = AttentionWeights(V=[[1, 0], [0, 2]], B=[[3, 0], [0, 1]])
    >>> [part.dominant for part in spectra(theory.spectrum(w)).parts]
    [[True, False], [True, False]]
    """
    instance(spectrum, "spectrum", Spectrum, "what theory.spectrum returns")
    parts = []
    for part, label in ((spectrum.M, "M = V Bᵀ"), (spectrum.V, "V")):
        values = [complex(z) for z in part.eigenvalues.tolist()]
        parts.append(Eigenvalues(label, values, [i < part.dimension for i in range(len(values))]))
    return Spectra(title, parts)


def dominant_axes(spectrum: Spectrum) -> list[Axis]:
    """The dominant spaces of M and of V where they are lines."""
    instance(spectrum, "spectrum", Spectrum, "what theory.spectrum returns")
    found = ((spectrum.M, "E: top of M = V Bᵀ", CONCENTRATED), (spectrum.V, "top of V", TERMINAL))
    return [Axis(label, np.asarray(part.space[:, 0]), phase) for part, label, phase in found if part.dimension == 1]
