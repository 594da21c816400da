"""Corrupted copies of texts: the same tokens with some replaced, or with some out of order, and which they are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Integer

REPLACED, DISPLACED = 0, 1
"""Kinds of corruption."""
SHARE_REPLACED = 0.15
"""Part of the tokens that are replaced, as in training by replaced-token detection (arXiv:2003.10555): enough to
learn from, few enough to leave every token a context that is mostly right."""
SHARE_DISPLACED = 0.4
"""Part of the tokens, one span of them, that are put in another order: they stand among each other, as in a text
that is out of order as a whole."""


def content(items: Sequence[dict[str, Any]], special: Collection[int]) -> list[Integer[np.ndarray, "_"]]:
    """Ids of the content tokens of every text."""
    rows = [item["input_ids"][0].numpy() for item in items]
    return [row[~np.isin(row, list(special))] for row in rows]


def corrupted(
    items: Sequence[dict[str, Any]], special: Collection[int], kind: int, seed: int
) -> tuple[list[dict[str, Any]], list[Bool[np.ndarray, "_"]]]:
    """A corrupted copy of every text, and for each of its content tokens whether it was touched.

    New tokens are drawn from all content tokens of the texts: as frequent as in these, and only out of place.
    """
    rng = np.random.default_rng([seed, kind])
    rows = [item["input_ids"][0].numpy() for item in items]
    places = [np.flatnonzero(~np.isin(row, list(special))) for row in rows]
    pool = np.concatenate(content(items, special))
    copies, touched = [], []
    for row, place in zip(rows, places, strict=True):
        new, n = row.copy(), len(place)
        if kind == REPLACED:
            hit = rng.random(n) < SHARE_REPLACED
            new[place[hit]] = rng.choice(pool, int(hit.sum())) if len(pool) else new[place[hit]]
        else:
            width = round(SHARE_DISPLACED * n)
            begin = int(rng.integers(n - width + 1))
            hit = np.zeros(n, dtype=bool)
            hit[begin : begin + width] = True
            new[place[hit]] = rng.permutation(new[place[hit]])
        ids = torch.from_numpy(new)[None]
        copies.append({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
        touched.append(hit)
    return copies, touched
