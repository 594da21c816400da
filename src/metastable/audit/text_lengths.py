"""Curves over length: the same texts cut after 8, 16, ..., 256 tokens, and what of the findings changes with it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from metastable.audit.on_tokens import attention_summary, kappas, participation
from metastable.audit.spread import mean
from metastable.encoders import Encoder

LENGTHS = (8, 16, 32, 64, 128, 256)
"""Numbers of tokens after which texts are cut."""
TEXTS = 8
"""Texts that are cut, at most, spread over those that are long enough for all lengths of the curve."""
SINK = 0.25
"""Share of a head's attention on one token from which that token is told as a sink: a rule of thumb."""


@dataclass(frozen=True)
class LengthPoint:
    """The same texts, cut after `tokens` tokens."""

    tokens: int
    texts: int
    kappa: list[float]
    """Of every layer: the median of its heads' kappa."""
    d_eff: list[float]
    kappa_over_dimension: list[float]
    entropy: list[float]
    """Of every layer: mean attention entropy / log n."""
    sink_heads: int
    """Heads that send a quarter or more of all attention to one token of a text."""


def length_curve(encoder: Encoder, texts: Sequence[Any], report: Callable[[str], None]) -> list[LengthPoint]:
    """The curve up to the longest length that at least half of the texts (and one) reach; empty for images.

    All points of the curve are of the same texts, so that it shows length and not another choice of texts.
    """
    if encoder.inputs.kind == "image":
        return []
    limit = encoder.inputs.max_tokens
    lengths = [min(n, limit or n) for n in encoder.inputs.lengths(texts)]
    reached = [n for n in LENGTHS if 2 * sum(length >= n for length in lengths) >= len(lengths)]
    if not reached:
        return []
    long = [text for text, length in zip(texts, lengths, strict=True) if length >= reached[-1]]
    pick = torch.linspace(0, len(long) - 1, min(len(long), TEXTS)).round().long().tolist()
    chosen = [long[i] for i in pick]
    result = []
    for n in reached:
        report(f"texts cut after {n} tokens")
        result.append(_point(encoder, chosen, n))
    return result


def _point(encoder: Encoder, texts: Sequence[Any], n: int) -> LengthPoint:
    if encoder.inputs.kind == "text":
        short = replace(encoder, inputs=replace(encoder.inputs, max_tokens=n))
        points = [short.points([text])[0] for text in texts]
    else:
        points = [encoder.points([text[:n]])[0] for text in texts]
    kappa, d_eff, entropy, sinks = [], [], [], 0
    for layer in encoder.layers:
        seen = [rows[layer.index] for rows in points]
        medians = torch.stack([kappas(layer, rows).median(dim=1).values for rows in seen]).mean(dim=0)
        summaries = [attention_summary(layer, rows) for rows in seen]
        kappa.append(statistics.median(medians.tolist()))
        d_eff.append(mean([participation(rows) for rows in seen]))
        entropy.append(mean([float(found[0].mean()) for found in summaries]))
        sinks += int((torch.stack([found[1] for found in summaries]).mean(dim=0) >= SINK).sum())
    ratio = [k / max(d - 1, 1e-9) for k, d in zip(kappa, d_eff, strict=True)]
    return LengthPoint(n, len(texts), kappa, d_eff, ratio, entropy, sinks)
