"""Detectors to compare with: each is fitted to the calibration texts and gives a text a number, large if odd."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable

import numpy as np
import torch

NEIGHBOURS = 10
BATCH = 16
"""Texts of a batch, for the detectors of batches."""


def mahalanobis(rows: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Squared distance of Mahalanobis, covariance shrunk by Ledoit and Wolf (the sum is over the leading axes)."""
    from metastable.monitor.gaussian import Gaussian

    law = Gaussian.fit(torch.from_numpy(rows))
    return lambda x: law.distance(torch.from_numpy(x)).double().numpy()


def nearest(rows: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Distance of a unit embedding to its tenth neighbour (deep nearest neighbours, arXiv:2204.06507)."""

    def distance(x: np.ndarray) -> np.ndarray:
        return -np.partition(x @ rows.T, -NEIGHBOURS, axis=1)[:, -NEIGHBOURS]

    return distance


def single(means: np.ndarray, ends: np.ndarray, lengths: np.ndarray) -> dict[str, Callable[..., np.ndarray]]:
    """Baselines for one text, as functions of (means (t, P, d), ends (t, d), lengths (t,))."""
    middle = np.log(lengths).mean()
    last, near = mahalanobis(ends), nearest(ends)
    layers = [mahalanobis(means[:, p]) for p in range(means.shape[1])]
    found: dict[str, Callable[..., np.ndarray]] = {
        "length": lambda m, e, n: np.abs(np.log(n) - middle),
        "embedding, Mahalanobis": lambda m, e, n: last(e),
        "embedding, 10 neighbours": lambda m, e, n: near(e),
        "all layers, Mahalanobis": lambda m, e, n: np.mean([f(m[:, p]) for p, f in enumerate(layers)], axis=0),
    }
    return found | _pytorch_ood(ends)


def _pytorch_ood(ends: np.ndarray) -> dict[str, Callable[..., np.ndarray]]:
    """pytorch-ood's detectors that need features and no classifier, where it is installed.

    Its package imports its models of images, which need torchvision; its detectors do not, so they are imported
    by their own name, and the package itself is found but not run.
    """
    spec = importlib.util.find_spec("pytorch_ood")
    if spec is None:
        return {}
    sys.modules.setdefault("pytorch_ood", importlib.util.module_from_spec(spec))
    theirs = importlib.import_module("pytorch_ood.detector")
    rows = torch.from_numpy(ends)
    label = torch.zeros(len(rows), dtype=torch.long)
    found: dict[str, Callable[..., np.ndarray]] = {}
    for name, detector in (
        ("Mahalanobis", theirs.Mahalanobis(None)),
        ("KNN", theirs.KNN(None, k=NEIGHBOURS)),
        ("GMM", theirs.GMM(None)),
    ):
        detector.fit_features(rows, label)
        found[f"pytorch-ood, {name}"] = lambda m, e, n, d=detector: np.asarray(
            d.predict_features(torch.from_numpy(e))
        )
    return found


def mmd(reference: np.ndarray, batches: np.ndarray) -> np.ndarray:
    """Squared maximum mean discrepancy of batches (k, b, d) and a reference (m, d), Gaussian kernel."""
    width = np.median(_squared(reference[:300:2], reference[1:300:2]))

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.exp(-_squared(a, b) / width)

    b = batches.shape[1]
    own = kernel(reference, reference).mean()
    values = []
    for batch in batches:
        inner = kernel(batch, batch)
        values.append((inner.sum() - np.trace(inner)) / (b * (b - 1)) + own - 2 * kernel(batch, reference).mean())
    return np.array(values)


def _squared(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.maximum((a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2 * a @ b.T, 0.0)
