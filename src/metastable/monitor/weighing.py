"""The weighted Fisher sum: sum over channels c of w_c s_c, s_c = -log p_c the surprise of a channel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

WEIGHTS = {
    "odd": 2.0,
    "apart": 1.5,
    "struct": 0.5,
    "typ": 0.5,
    "lex": 0.5,
    "lay": 0.25,
    "emb": 0.25,
    "attention": 0.25,
    "dynamics": 0.25,
}
"""Weights that are not one. Channels that rise together when a text is of another kind outvote the few that see a
word out of place: see `monitor` and `monitor, sum without weights` of benchmarks/detect.py. Chosen on news and the
development kinds of shift alone, for two encoders at once."""


def weighted_sum(surprises: Float[np.ndarray, "b c"], names: Sequence[str]) -> Float[np.ndarray, "b"]:
    """The sum of every row."""
    return surprises @ np.array([WEIGHTS.get(name, 1.0) for name in names])
