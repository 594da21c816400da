"""Drift of a batch: the mean of normal scores, with the variance that texts of one document give it.

z = Phi^-1(1 - p) is standard normal for texts that are as they should be, but texts of one document resemble each
other: z has correlation rho inside a document. The mean over b texts in documents of n_c texts has variance
    sum_c n_c (1 + (n_c - 1) rho) / b^2,
and a batch that is one document has the variance (1 + (b - 1) rho) / b, which does not go to zero: one odd document
is not drift. The mean of the calibration texts is known with an error of its own, which is added.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from metastable.arguments import OneLine
from metastable.monitor.conformal import Conformal

UNKNOWN_CORRELATION = 0.5
"""Correlation inside a document where every calibration text is a document of its own, so that none is measured."""


@dataclass(frozen=True, repr=False)
class Drift(OneLine):
    """Whether a batch as a whole is unusual: the mean normal score, its standard deviation, one-sided p."""

    texts: int
    judged: int
    mean: float
    deviation: float
    p: float
    alarm: bool
    alarms: int
    """Texts of the batch that alarm by themselves."""
    channel: str
    """The channel whose surprise is largest in the mean."""


@dataclass(frozen=True)
class Blocks:
    """What the documents of the calibration say about batches."""

    correlation: float
    error: float
    """Variance of the mean normal score of the calibration texts."""
    measured: bool

    @classmethod
    def of(cls, whole: Conformal, sums: Float[np.ndarray, "n"], documents: Sequence[Hashable]) -> Blocks:
        """Correlation inside documents by the analysis of variance."""
        z = normal_scores(whole, sums)
        groups: dict[Hashable, list[float]] = {}
        for document, value in zip(documents, z, strict=True):
            groups.setdefault(document, []).append(float(value))
        sizes = np.array([len(g) for g in groups.values()])
        n, c = int(sizes.sum()), len(sizes)
        if n - c < 8 or c < 4:
            return cls(UNKNOWN_CORRELATION, 1.0 / n, False)
        means = np.array([np.mean(g) for g in groups.values()])
        within = sum(float(np.sum((np.array(g) - m) ** 2)) for g, m in zip(groups.values(), means, strict=True)) / (
            n - c
        )
        between = float((sizes * (means - z.mean()) ** 2).sum()) / (c - 1)
        size = (n - float((sizes**2).sum()) / n) / (c - 1)
        rho = (between - within) / max(between + (size - 1) * within, 1e-12)
        rho = min(max(rho, 0.0), 1.0)
        return cls(rho, _variance(sizes, rho), True)

    def variance(self, sizes: Sequence[int]) -> float:
        """Variance of the mean normal score of a batch with so many texts of each document."""
        return _variance(np.asarray(sizes), self.correlation) + self.error


def _variance(sizes: np.ndarray, rho: float) -> float:
    return float((sizes * (1 + (sizes - 1) * rho)).sum()) / float(sizes.sum()) ** 2


def normal_scores(whole: Conformal, sums: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Phi^-1(1 - p) of sums of surprises, by their rank among those of the calibration."""
    from scipy.special import ndtri

    m = len(whole.scores)
    low = np.searchsorted(whole.scores, sums, side="left")
    high = np.searchsorted(whole.scores, sums, side="right")
    rank = (low + high) / 2
    return ndtri((rank + 0.5) / (m + 1))


def judge_batch(
    blocks: Blocks, z: Float[np.ndarray, "n"], documents: Sequence[Hashable]
) -> tuple[float, float, float]:
    """Mean, standard deviation, one-sided p."""
    sizes = list(Counter(documents).values())
    deviation = math.sqrt(blocks.variance(sizes))
    mean = float(np.mean(z))
    p = 0.5 * math.erfc(mean / deviation / math.sqrt(2))
    return mean, deviation, p
