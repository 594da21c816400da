"""Texts for monitors of small random models: token ids with a law that a shift can break."""

from __future__ import annotations

import numpy as np


def walks(count: int, seed: int, low: int = 8, high: int = 40) -> list[list[int]]:
    """Texts as ids 5 ... 54: every token is one to three further than the one before, as in no other text."""
    chance = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        steps = chance.integers(1, 4, int(chance.integers(low, high + 1)))
        made.append([int(i) for i in 5 + (chance.integers(50) + np.cumsum(steps)) % 50])
    return made


LETTERS = "abcdefghijklmnopqrstuvwxyz"


def sentences(count: int, seed: int, low: int = 8, high: int = 40) -> list[str]:
    """Letters, each one to three further in the alphabet than the one before."""
    chance = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        steps = chance.integers(1, 4, int(chance.integers(low, high + 1)))
        made.append(" ".join(LETTERS[i % 26] for i in chance.integers(26) + np.cumsum(steps)))
    return made
