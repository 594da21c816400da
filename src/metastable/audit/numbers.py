"""The numbers of an audit by short names: for thresholds, and to read one encoder against others."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from metastable.audit.text_findings import SINK

OF_WEIGHTS: dict[str, tuple[str, Callable[[Any], float]]] = {
    "attention_error": ("largest error of rebuilt attention", lambda r: r.model["verification"]["attention_error"]),
    "kappa": ("|B|_F / sqrt(d), median head", lambda r: statistics.median(h.kappa for h in r.weights.heads)),
    "ratio": ("Re λ(M0) / Re λ(ΣA), largest layer", lambda r: max(l.ratio for l in r.weights.layers)),
    "stable_rank": ("stable rank of ΣA, smallest layer", lambda r: min(l.stable_rank for l in r.weights.layers)),
    "asymmetry": (
        "|M - M^T| / 2|M|, median head",
        lambda r: statistics.median(h.asymmetry for h in r.weights.heads),
    ),
}
"""Names, meanings and where they are found, of what needs no text."""
OF_TEXT: dict[str, tuple[str, Callable[[Any], float]]] = {
    "unknown": ("share of tokens that the tokenizer does not know", lambda t: t.unknown),
    "kappa_on_text": ("|B^T s + g|, median layer", lambda t: statistics.median(l.kappa for l in t.layers)),
    "kappa_over_dimension": (
        "kappa / (d_eff - 1), median layer",
        lambda t: statistics.median(l.kappa_over_dimension for l in t.layers),
    ),
    "entropy": ("attention entropy / log n, mean layer", lambda t: statistics.mean(l.entropy for l in t.layers)),
    "sink_heads": (
        f"share of heads with {SINK:.0%} of their attention on one token",
        lambda t: sum(h.sink >= SINK for h in t.heads) / len(t.heads),
    ),
    "mean_cosine": ("between tokens of one input, at the last layer", lambda t: t.layers[-1].mean_cosine),
    "effective_rank": ("of the tokens of one input, at the last layer", lambda t: t.layers[-1].effective_rank),
    "gaussian": ("cosine of the Gaussian one-step forecast", lambda t: _forecast(t, "gaussian")),
    "zero_temperature": ("cosine of the zero-temperature forecast", lambda t: _forecast(t, "zero_temperature")),
    "without_attention": ("cosine of the embedding without attention", lambda t: t.closures["none"]),
}
"""Names, meanings and where they are found, of what texts decide."""


def numbers(report: Any) -> dict[str, float | None]:
    """The numbers of a report by their short names."""
    found: dict[str, float | None] = {name: float(of(report)) for name, (_, of) in OF_WEIGHTS.items()}
    if report.text is not None:
        found |= {name: float(of(report.text)) for name, (_, of) in OF_TEXT.items()}
    return found | {f"advice_{advice.topic}": advice.kept for advice in report.advice}


def _forecast(text: Any, name: str) -> float:
    return statistics.mean(step.cosine[name] for step in text.forecasts)
