"""Closures of softmax attention by moments, and every softmax of the network replaced by one of them at once.

For query i the keys have the weights w_ij that places alone give them (equal; e^{bias} with a bias by position, 0
outside a window) and the scores s_ij = <q_i, k_j>. With s_i = sum_j w_ij s_ij the attended value becomes
    gaussian   sum_j w_ij (1 + s_ij - s_i) v_j    the tilt of a Gaussian cloud, mu_v + Cov(v, k) q_i
    mean       sum_j w_ij v_j                     attention without scores
    argmax     v_j of the largest logit           attention without temperature
so that what places do is in all of them, as it is in attention itself. `with_sinks` attends the first and the last
token (the special tokens of a text) exactly, and the rest as one cloud.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from metastable.encoders import Encoder, Layer
from metastable.encoders.capture import Closure


def gaussian(layer: Layer, q: Tensor, k: Tensor, v: Tensor, match: Tensor | None = None) -> Tensor:
    """The Gaussian tilt (H, n, r); match: the heads that q and k (and the bias with them) are from."""
    if layer.positions.bias is None and layer.positions.window is None:
        centre = v.mean(dim=1, keepdim=True)
        covariance = (v - centre).mT @ (k - k.mean(dim=1, keepdim=True)) / k.shape[1]
        return centre + q @ covariance.mT
    rows = []
    for _, scores, places in layer.score_blocks(q, k):
        weights = _weights(scores, places, match)
        rows.append((weights * (1 + scores - (weights * scores).sum(dim=2, keepdim=True))) @ v)
    return torch.cat(rows, dim=1)


def mean(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Uniform attention, as far as places allow it."""
    if layer.positions.bias is None and layer.positions.window is None:
        return v.mean(dim=1, keepdim=True).expand_as(v)
    return torch.cat([_weights(s, places) @ v for _, s, places in layer.score_blocks(q, k)], dim=1)


def with_sinks(layer: Layer, q: Tensor, k: Tensor, v: Tensor, *, tilt: bool) -> Tensor:
    """First and last token attended exactly, the others as one cloud: Gaussian (`tilt`), or a point at its mean.

    Z_i = sum_sinks e^{s_ij + b_ij} + e^{s_i + var_i/2} sum_cloud e^{b_ij}, with s_i and var_i the mean and variance
    of the scores under the weights of the cloud; the point at the mean has no variance and no tilt.
    """
    n = k.shape[1]
    if n < 4:
        return softmax(layer, q, k, v)
    sinks, inner = [0, n - 1], slice(1, n - 1)
    rows = []
    for _, scores, places in layer.score_blocks(q, k):
        cloud = scores[..., inner]
        weights = _weights(cloud, None if places is None else places[..., inner])
        centre = (weights * cloud).sum(dim=2, keepdim=True)
        share = math.log(n - 2) if places is None else torch.logsumexp(places[..., inner], dim=2, keepdim=True)
        log_cloud, factor = centre + share, weights
        if tilt:
            log_cloud = log_cloud + 0.5 * (weights * (cloud - centre).square()).sum(dim=2, keepdim=True)
            factor = weights * (1 + cloud - centre)
        ends = scores[..., sinks] if places is None else scores[..., sinks] + places[..., sinks]
        parts = torch.softmax(torch.cat((ends, log_cloud), dim=2), dim=2)
        rows.append(parts[..., :2] @ v[:, sinks] + parts[..., 2:] * (factor @ v[:, inner]))
    return torch.cat(rows, dim=1)


def softmax(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention itself."""
    return torch.cat([torch.softmax(l, dim=-1) @ v for _, l in layer.logit_blocks(q, k)], dim=1)


def argmax(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Every token attends its best key only."""
    rows = [l.argmax(dim=-1)[..., None].expand(-1, -1, v.shape[2]) for _, l in layer.logit_blocks(q, k)]
    return torch.gather(v, 1, torch.cat(rows, dim=1))


def none(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """No attention at all: tokens never meet before the pooling."""
    return torch.zeros_like(v)


def _weights(scores: Tensor, places: Tensor | None, match: Tensor | None = None) -> Tensor:
    """w_ij; a query that sees no key of a cloud has no weights in it."""
    if places is None:
        return torch.full_like(scores, 1 / scores.shape[2])
    if match is not None and len(places) > 1:
        places = places[match]
    return torch.softmax(places, dim=2).nan_to_num(0.0).expand_as(scores)


CLOSURES: dict[str, Closure] = {
    "gaussian_with_sinks": partial(with_sinks, tilt=True),
    "mean_with_sinks": partial(with_sinks, tilt=False),
    "argmax": argmax,
    "gaussian": gaussian,
    "mean": mean,
    "none": none,
}
"""Closures by name: those that attend first and last token as attention does, those that do not, no attention."""
SEES_SINKS = ("gaussian_with_sinks", "mean_with_sinks", "argmax")
"""Closures that are compared with each other: first and last token exactly (argmax sees every key as it is)."""


def closure_cosines(encoder: Encoder, texts: Sequence[Any]) -> dict[str, list[float]]:
    """For every closure the cosine between its embedding and the model's own, one per text."""
    own = encoder.embed(texts)
    return {name: (encoder.embed(texts, close) * own).sum(dim=1).tolist() for name, close in CLOSURES.items()}
