"""A flow from its record: what `describe` wrote, read back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metastable.flows import (
    Causal,
    CommonNoise,
    EuclideanAttention,
    Flow,
    Hardmax,
    MultiHead,
    ReLUAttention,
    SelfAttention,
    UnnormalizedAttention,
    ZeroTemperature,
)
from metastable.weights import AttentionWeights

KINDS: dict[str, Callable[..., Flow]] = {
    kind.__name__: kind
    for kind in (SelfAttention, UnnormalizedAttention, ZeroTemperature, Hardmax, EuclideanAttention, ReLUAttention)
}
"""Flows that are their weights and a few numbers."""


def rebuilt(description: dict[str, Any]) -> Flow | None:
    """The flow that gave this description, if it holds all that is needed; its own description decides.

    Weights are in a description when they are small; schedules and factors of low rank are not.

    >>> flow = SelfAttention(AttentionWeights(V=[[1.0, 0.3], [0.0, 1.0]], B=[[1.0, 0.0], [0.0, 1.0]]), beta=0.1)
    >>> rebuilt(flow.describe()).describe() == flow.describe()
    True
    """
    try:
        flow = _candidate(description)
        return flow if flow is not None and flow.describe() == description else None
    except Exception:  # a record from elsewhere may hold anything
        return None


def _candidate(description: dict[str, Any]) -> Flow | None:
    options = {name: value for name, value in description.items() if name not in ("flow", "weights", "heads")}
    if description["flow"] == "MultiHead":
        heads = [rebuilt(head) for head in description["heads"]]
        found = [head for head in heads if head is not None]
        return MultiHead(found, **options) if len(found) == len(heads) else None
    if description["flow"] == "Causal":
        inner = rebuilt(options.pop("of"))
        return None if inner is None else Causal(inner, **options)
    if description["flow"] == "CommonNoise":
        drift = options.pop("of")
        inner = None if drift is None else rebuilt(drift)
        name, coefficients = options.pop("kappa"), options.pop("coefficients", None)
        kappa = {"covariance": coefficients} if name == "polynomial" else {"activation": name}
        return None if (inner is None) != (drift is None) else CommonNoise(inner, **kappa, **options)
    kind, weights = KINDS.get(description["flow"]), description.get("weights", {})
    if kind is None or not isinstance(weights, dict) or "V" not in weights:
        return None
    return kind(AttentionWeights(V=weights["V"], B=weights["B"]), **options)
