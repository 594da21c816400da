"""Documents, not texts, are split: what texts of one document share never stands on both sides of a judgement."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

PARTS = {"fit": 0.45, "ranks": 0.2, "recalibration": 0.35}
"""What the documents are for, and their shares: the laws of the channels; the trend of their scores in the length
of a text and their p-values; the p-value of their sum, which must see documents that were used for nothing else.
The share of false alarms of one calibration is itself a random number, of standard deviation sqrt(r (1 - r) / m)
around the nominal rate r with m texts in the last part: at 5% .016 with 200 texts, .012 with 350 of a thousand."""


LAST_TEXTS, LARGEST_LAST = 120, 0.4
"""Texts that the last part should have for a rate of 1%, and the largest share that it may take to get them."""


def shares(texts: int) -> dict[str, float]:
    """Shares of the parts for so many texts: PARTS, with a larger last part where it would be too small for 1%."""
    last = min(max(PARTS["recalibration"], LAST_TEXTS / texts), LARGEST_LAST)
    rest = (1 - last) / (1 - PARTS["recalibration"])
    return {name: last if name == "recalibration" else rest * share for name, share in PARTS.items()}


def split(documents: Sequence[Hashable], seed: int) -> dict[str, np.ndarray]:
    """Indices of the texts of every part, whole documents in a seeded order."""
    names = list(dict.fromkeys(documents))
    order = np.random.default_rng(seed).permutation(len(names))
    ends = np.round(np.cumsum(list(shares(len(documents)).values())) * len(names)).astype(int)
    part_of = dict(
        zip((names[i] for i in order), np.searchsorted(ends, np.arange(len(names)), side="right"), strict=True)
    )
    number = np.array([part_of[document] for document in documents])
    return {name: np.flatnonzero(number == i) for i, name in enumerate(PARTS)}
