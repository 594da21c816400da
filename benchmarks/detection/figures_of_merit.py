"""AUROC, true positives at a rate of false ones, and their standard errors by bootstrap over documents."""

from __future__ import annotations

import numpy as np

RESAMPLES = 200


def auroc(inside: np.ndarray, outside: np.ndarray) -> float:
    """P(outside > inside) + P(equal) / 2."""
    return float(_wins(inside, outside).mean())


def caught(inside: np.ndarray, outside: np.ndarray, rate: float = 0.01) -> float:
    """Share of `outside` above the (1 - rate) quantile of `inside`."""
    return float((outside > np.quantile(inside, 1 - rate, method="higher")).mean())


def mean_with_errors(
    inside: np.ndarray, outside: list[np.ndarray], seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Mean AUROC and mean share caught at 1% over shifts, each with its standard error.

    Shifts are made of the same documents, in the same order: these are drawn once for all of them.
    """
    rng = np.random.default_rng(seed)
    wins = [_wins(inside, one) for one in outside]
    areas, shares = [], []
    for _ in range(RESAMPLES):
        i = rng.integers(len(inside), size=len(inside))
        j = rng.integers(min(map(len, outside)), size=min(map(len, outside)))
        areas.append(np.mean([w[np.ix_(i, j)].mean() for w in wins]))
        shares.append(np.mean([caught(inside[i], one[j]) for one in outside]))
    return {
        "auroc": (float(np.mean([w.mean() for w in wins])), float(np.std(areas))),
        "caught": (float(np.mean([caught(inside, one) for one in outside])), float(np.std(shares))),
    }


def _wins(inside: np.ndarray, outside: np.ndarray) -> np.ndarray:
    return (outside[None] > inside[:, None]) + 0.5 * (outside[None] == inside[:, None])
