"""`Finding`: one plain sentence with its evidence, and how numbers and layers are put into words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from metastable.arguments import OneLine


@dataclass(frozen=True, repr=False)
class Finding(OneLine):
    """One sentence, the evidence in words, and a confidence: "measured", "supported" or "weak".

    numbers: what the sentence rests on and the verdict that it puts into words, by name, as plain data: whoever has
    the hidden states and the weights can compute them anew (`tests/recompute_audit.py` does).
    """

    sentence: str
    evidence: str
    confidence: str
    name: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)


def span(values: Sequence[float]) -> str:
    """The smallest and the largest of some numbers."""
    return f"{min(values):.2g} to {max(values):.2g}"


def two_decimals(value: float) -> str:
    """Two decimals, and no "-0.00"."""
    return f"{round(value, 2) + 0.0:.2f}"


def percents(values: Sequence[float]) -> str:
    """The smallest and the largest share, or the one that both are."""
    low, high = f"{min(values):.0%}", f"{max(values):.0%}"
    return low if low == high else f"{low} to {high}"


def by_layer(words: Sequence[str]) -> str:
    """What is said of every layer, layers of which the same is said together."""
    said: dict[str, list[int]] = {}
    for layer, word in enumerate(words):
        said.setdefault(word, []).append(layer)
    return "; ".join(f"{word} in {layers_in_words(layers, len(words))}" for word, layers in said.items())


def layers_in_words(numbers: Sequence[int], count: int | None = None) -> str:
    """The layers in words, neighbours as ranges; `count` is that of all layers."""
    if len(numbers) == count and count > 1:
        return "both layers" if count == 2 else f"all {count} layers"
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    words = [w for run in runs for w in ([f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run))]
    return f"layer{'s' * (len(numbers) > 1)} {listed(words)}"


def listed(words: Sequence[str]) -> str:
    """a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
