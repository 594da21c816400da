"""Closures in the whole network: every softmax replaced at once, the final embedding compared with the true one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from metastable.audit.forecasts import gaussian
from metastable.encoders import Encoder, Layer


def gaussian_with_sinks(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """First and last token (the special tokens of a text) attended exactly, the others as one Gaussian cloud.

    Z = sum_sinks e^{<q,k_j>} + n' e^{<q,mu> + <q,Sigma q>/2}; the cloud's mean value is mu_v + Cov(v, k) q.
    """
    n = k.shape[1]
    if n < 4:
        return softmax(layer, q, k, v)
    sinks = [0, n - 1]
    inner = slice(1, n - 1)
    cloud = k[:, inner]
    mean = cloud.mean(dim=1, keepdim=True)
    covariance = (cloud - mean).mT @ (cloud - mean) / cloud.shape[1]
    exponent = (q * mean).sum(-1) + 0.5 * torch.einsum("hnr,hrs,hns->hn", q, covariance, q)
    log_cloud = exponent + math.log(n - 2)
    logits = torch.cat((q @ k[:, sinks].mT, log_cloud[..., None]), dim=2)
    share = torch.softmax(logits, dim=2)
    return share[..., :2] @ v[:, sinks] + share[..., 2:] * gaussian(q, cloud, v[:, inner])


def softmax(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention itself."""
    return torch.cat([torch.softmax(l, dim=-1) @ v for _, l in layer.logit_blocks(q, k)], dim=1)


def argmax(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Every token attends its best key only."""
    rows = [l.argmax(dim=-1)[..., None].expand(-1, -1, v.shape[2]) for _, l in layer.logit_blocks(q, k)]
    return torch.gather(v, 1, torch.cat(rows, dim=1))


def mean(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Uniform attention."""
    return v.mean(dim=1, keepdim=True).expand_as(v)


def none(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """No attention at all: tokens never meet before the pooling."""
    return torch.zeros_like(v)


CLOSURES = {
    "gaussian_with_sinks": gaussian_with_sinks,
    "gaussian": lambda layer, q, k, v: gaussian(q, k, v),
    "argmax": argmax,
    "mean": mean,
    "none": none,
}
"""Closures by name, from the most to the least attention."""


def closure_cosines(encoder: Encoder, texts: Sequence[Any]) -> dict[str, list[float]]:
    """For every closure the cosine between its embedding and the model's own, one per text."""
    own = encoder.embed(texts)
    return {name: (encoder.embed(texts, close) * own).sum(dim=1).tolist() for name, close in CLOSURES.items()}
