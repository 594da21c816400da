"""What was found, in plain sentences, each with the evidence and the confidence that it deserves."""

from __future__ import annotations

from collections.abc import Sequence

from metastable.audit.depth_findings import depth_finding
from metastable.audit.finding import Finding, span
from metastable.audit.heads import WeightAudit
from metastable.audit.loop import LoopAudit
from metastable.audit.text import TextAudit
from metastable.audit.text_findings import temperature_on_text, text_findings
from metastable.audit.weight_findings import weight_findings
from metastable.encoders import Encoder
from metastable.encoders.verification import TOLERANCE

LIMITS = (
    "It does not forecast how tokens move through the stacked layers: the limit map Pi of the theory belongs to "
    "one layer iterated for ever, and stacked-layer movement is not forecast by Pi.",
    "The looped layer is a thought experiment on real weights: no model is run that way, and the MLPs, the "
    "residual gains and the other layers are left out.",
    "One-step forecasts use the mean and covariance of the very tokens whose update they forecast; they say which "
    "statistics attention reads, not what it will do on text that was not measured.",
    "It says nothing about the quality, fairness or safety of the model, nor, unless that was tried on it, about "
    "which heads may be removed.",
    "Numbers measured on texts (or images) belong to these; others give other numbers.",
    "Thresholds (an early phase above a ratio of 3; 25% of the energy to gather; 95% at the end; more than half of "
    "the starts) are rules of thumb, not theorems.",
)
"""What the report does not tell."""


def findings(
    encoder: Encoder, weights: WeightAudit, text: TextAudit | None, loops: Sequence[LoopAudit]
) -> list[Finding]:
    """The sentences of the first page."""
    temperature = _temperature_of_weights(weights) if text is None else temperature_on_text(text)
    on_text = [] if text is None else [*text_findings(text, weights), depth_finding(text)]
    return [_rebuilt(encoder, text), temperature, *on_text, *weight_findings(weights, loops)]


def _rebuilt(encoder: Encoder, text: TextAudit | None) -> Finding:
    check = encoder.verification if text is None else text.verification
    on = "sentences (or random input) of our own" if text is None else f"the given {text.item}s"
    return Finding(
        f"The weights were read correctly: the model's own attention is rebuilt from them in every layer on {on}, "
        f"up to {check.longest} tokens long.",
        f"largest difference of a probability {check.attention_error:.1e}, of the update (relative) "
        f"{check.update_error:.1e}, accepted {TOLERANCE:.0e}; {check.tokens} tokens in {check.items} "
        f"{'inputs' if text is None else text.item + 's, the longest'}; {check.layers} layers; {check.precision}; "
        "longer input and other kinds of input were not compared",
        "measured",
        "rebuilt",
        {
            "attention_error": check.attention_error,
            "update_error": check.update_error,
            "layers": check.layers,
            "items": check.items,
            "tokens": check.tokens,
            "longest": check.longest,
        },
    )


def _temperature_of_weights(weights: WeightAudit) -> Finding:
    kappas = [layer.kappa for layer in weights.layers]
    ratios = [layer.kappa / max(layer.d_eff - 1, 1) for layer in weights.layers]
    return Finding(
        "How cold attention is depends on the tokens: the weights alone do not decide it, a text would.",
        f"for tokens without preferred direction kappa is {span(kappas)}, kappa/(d_eff - 1) {span(ratios)}",
        "weak",
        "temperature",
        {"kappa": kappas, "ratio": ratios},
    )
