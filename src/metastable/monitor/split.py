"""Documents, not texts, are split: what two texts of one document share never stands on both sides of a judgement."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

PARTS = {"fit": 0.45, "trend": 0.15, "conformal": 0.2, "recalibration": 0.2}
"""What the documents are for, and their shares: the laws of the channels, the trend of their scores in the length of a
text, the p-values of the channels, the p-value of their sum. Laws in hundreds of dimensions need the most; a nominal
rate of 1% needs at least 99 texts in the last part."""


def split(documents: Sequence[Hashable], seed: int) -> dict[str, np.ndarray]:
    """Indices of the texts of every part, whole documents in a seeded order."""
    names = list(dict.fromkeys(documents))
    order = np.random.default_rng(seed).permutation(len(names))
    ends = np.round(np.cumsum(list(PARTS.values())) * len(names)).astype(int)
    part_of = dict(
        zip((names[i] for i in order), np.searchsorted(ends, np.arange(len(names)), side="right"), strict=True)
    )
    number = np.array([part_of[document] for document in documents])
    return {name: np.flatnonzero(number == i) for i, name in enumerate(PARTS)}
