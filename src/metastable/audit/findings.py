"""What was found, in plain sentences, each with the evidence and the confidence that it deserves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metastable.audit.heads import WeightAudit
from metastable.audit.loop import EARLY_RATIO, ENDS, PASSES, LoopAudit
from metastable.audit.scorecard import COLD
from metastable.audit.text import TextAudit
from metastable.encoders import Encoder

SINK = 0.25
REACHED = 0.9
"""Mean cosine of the zero-temperature forecast from which its limit is called reached."""
SHORT = 16
"""Mean number of tokens below which nothing measured on text is called more than weak."""
LIMITS = (
    "It does not forecast how tokens move through the stacked layers: the limit map Pi of the theory belongs to "
    "one layer iterated for ever, and stacked-layer movement is not forecast by Pi.",
    "The looped layer is a thought experiment on real weights: no model is run that way, and the MLPs, the "
    "residual gains and the other layers are left out.",
    "One-step forecasts use the mean and covariance of the very tokens whose update they forecast; they say which "
    "statistics attention reads, not what it will do on text that was not measured.",
    "It says nothing about the quality, fairness or safety of the model, nor about which heads may be removed.",
    "Numbers measured on text belong to that text; other text gives other numbers.",
    "Thresholds (an early phase above a ratio of 3; 25% of the energy and twice the control; 95% at the end) are "
    "rules of thumb, not theorems.",
)
"""What the report does not tell."""


@dataclass(frozen=True)
class Finding:
    """One sentence, the numbers behind it, and a confidence: "measured", "supported" or "weak"."""

    sentence: str
    evidence: str
    confidence: str


def findings(
    encoder: Encoder, weights: WeightAudit, text: TextAudit | None, loops: Sequence[LoopAudit]
) -> list[Finding]:
    """The sentences of the first page."""
    said: list[Finding | None] = [_verified(encoder), _temperature(weights, text)]
    if text is not None:
        said += [_short(text), _forecast(text), _closures(text), _sinks(text), _collapse(text)]
    said += [_terminal(loops), _early(weights, loops), _matching(weights), _bottleneck(weights)]
    return [finding for finding in said if finding is not None]


def _short(text: TextAudit) -> Finding | None:
    length = text.tokens / text.texts
    if length >= SHORT:
        return None
    return Finding(
        f"The texts are too short to say much: {length:.0f} tokens each, special tokens included.",
        f"with fewer than {SHORT} tokens a mean and covariance fit almost anything, and d_eff is at most "
        f"{length - 1:.0f}",
        "weak",
    )


def _verified(encoder: Encoder) -> Finding:
    check = encoder.verification
    return Finding(
        "The weights were read correctly: the model's own attention is rebuilt from them.",
        f"largest difference {check.attention_error:.1e} on {check.tokens} tokens, update {check.update_error:.1e}",
        "measured",
    )


def _temperature(weights: WeightAudit, text: TextAudit | None) -> Finding:
    if text is None:
        kappas = [layer.kappa for layer in weights.layers]
        ratios = [layer.kappa / max(layer.d_eff - 1, 1) for layer in weights.layers]
        return Finding(
            "How cold attention is depends on the tokens: the weights alone do not decide it, a text would.",
            f"for tokens without preferred direction kappa is {_span(kappas)}, kappa/(d_eff - 1) {_span(ratios)}",
            "weak",
        )
    ratios = [layer.kappa_over_dimension for layer in text.layers]
    limit = sum(f.cosine["zero_temperature"] for f in text.forecasts) / len(text.forecasts)
    reached = limit >= REACHED
    verdict = (
        "Attention is cold by the size of its scores, and its zero-temperature limit forecasts it."
        if min(ratios) > COLD and reached
        else "Attention is cold by the size of its scores, yet its zero-temperature limit does not forecast it."
        if min(ratios) > COLD
        else "Attention is warm in every layer: tokens average over many others."
        if max(ratios) < 1 / COLD
        else "Attention is neither cold nor warm in all layers; "
        + ("its zero-temperature limit forecasts it." if reached else "the zero-temperature limit is not reached.")
    )
    evidence = (
        f"kappa {_span([layer.kappa for layer in text.layers])}, kappa/(d_eff - 1) {_span(ratios)} over layers; "
        f"cosine of the zero-temperature forecast with the truth {limit:.2f} (reached: {REACHED:g})"
    )
    return Finding(verdict, evidence, "measured" if text.tokens >= SHORT * text.texts else "weak")


def _forecast(text: TextAudit) -> Finding:
    def mean(name: str) -> float:
        return sum(f.cosine[name] for f in text.forecasts) / len(text.forecasts)

    names = {
        "gaussian": "the mean and covariance of the tokens (Gaussian tilt)",
        "argmax": "each token's best key alone (argmax)",
        "uniform": "the mean of the tokens (uniform attention)",
        "zero_temperature": "the zero-temperature limit",
    }
    best = max(names, key=mean)
    controls = [v for f in text.forecasts if (v := f.control[best]) is not None]
    control = sum(controls) / len(controls) if controls else None
    # Uniform attention has no control of its own: being best, it says that scores add nothing.
    beats = best == "uniform" or all(
        f.cosine[best] - (f.control[best] or 0.0) > 2 * f.spread[best] for f in text.forecasts
    )
    against = "" if control is None else f", {control:.2f} with other heads' scores"
    first = sum(f.cosine[best] == max(f.cosine.values()) for f in text.forecasts)
    others = ", ".join(f"{n.replace('_', ' ')} {mean(n):.2f}" for n in names if n != best)
    return Finding(
        f"Averaged over layers, what attention adds to a token is forecast best by {names[best]}.",
        f"mean cosine {mean(best):.2f}{against}; {others}; the best in {first} of {len(text.forecasts)} layers",
        "supported" if _enough(text) and beats and 2 * first > len(text.forecasts) else "weak",
    )


def _closures(text: TextAudit) -> Finding:
    own = {k: v for k, v in text.closures.items() if k != "none"}
    best = max(own, key=lambda k: own[k])
    gain = own[best] - text.closures["none"]
    error = text.closures_spread[best] + text.closures_spread["none"]
    return Finding(
        f"Of the simple substitutes for softmax, {best.replace('_', ' ')} keeps most of the final embedding.",
        ", ".join(f"{k.replace('_', ' ')} {v:.2f}" for k, v in text.closures.items())
        + " (cosine with the true one)",
        "supported" if _enough(text) and gain > 2 * error else "weak",
    )


def _sinks(text: TextAudit) -> Finding | None:
    length = text.tokens / text.texts
    if length * SINK < 2:
        return None
    heavy = [h for h in text.heads if h.sink >= SINK]
    if not heavy:
        return Finding(
            "No head sends a quarter of its attention to a single token.",
            f"the largest share is {max(h.sink for h in text.heads):.0%}, uniform attention gives {1 / length:.1%}",
            "measured",
        )
    ends = sum(h.sink_position != 1 for h in heavy)
    return Finding(
        f"{len(heavy)} of {len(text.heads)} heads send a quarter or more of all attention to one token of a text.",
        f"in {ends} of them that token is the first or the last; "
        f"{_layers(sorted({h.layer for h in heavy}))}; uniform attention would give one token {1 / length:.1%}",
        "measured",
    )


def _collapse(text: TextAudit) -> Finding:
    first, last = text.layers[0], text.layers[-1]
    grows = last.mean_cosine > first.mean_cosine + 0.05
    verdict = (
        "Tokens of a text grow more alike with depth." if grows else "Tokens of a text do not collapse with depth."
    )
    return Finding(
        verdict,
        f"mean cosine {first.mean_cosine:.2f} -> {last.mean_cosine:.2f}, "
        f"effective rank {first.effective_rank:.0f} -> {last.effective_rank:.0f} from first to last layer's input",
        "measured",
    )


def _terminal(loops: Sequence[LoopAudit]) -> Finding:
    right = [loop for loop in loops if loop.terminal_holds]
    wrong = max((loop.terminal_wrong_layer for loop in right), default=0.0)
    if not right:
        return Finding(
            "Iterated alone, no layer ends in the dominant space of its values sum A.",
            "energy there at the end: " + ", ".join(f"{loop.terminal_energy:.2f}" for loop in loops),
            "measured",
        )
    missed = [loop.layer for loop in loops if not loop.terminal_holds]
    but = f"; {_layers(missed)} do{'es' * (len(missed) == 1)} not" if missed else ""
    return Finding(
        f"Iterated alone, {_layers([loop.layer for loop in right])} end{'s' * (len(right) == 1)} where the weights "
        f"say, in the dominant space of sum A{but}.",
        f"at least {min(loop.terminal_energy for loop in right):.0%} of the energy (asked: {ENDS:.0%}); the space "
        f"of another layer holds at most {wrong:.0%}; the forecast is right in {len(right)} of {len(loops)} layers",
        "supported" if wrong < 0.5 and 2 * len(right) > len(loops) else "weak",
    )


def _early(weights: WeightAudit, loops: Sequence[LoopAudit]) -> Finding:
    forecast = [loop for loop in loops if loop.forecast_early]
    right = sum(loop.early_holds for loop in loops)
    rotating = [layer.layer for layer in weights.layers if layer.product_is_complex]
    spin = f"; M0 has a complex dominant pair in {_layers(rotating)}" if rotating else ""
    if not forecast:
        return Finding(
            "No layer is forecast to have a separate early phase.",
            f"Re lambda(M0)/Re lambda(sum A) is below {EARLY_RATIO:g} everywhere; right in {right} of {len(loops)}"
            f" layers{spin}",
            "supported" if right == len(loops) else "weak",
        )
    peaks = ", ".join(
        f"{loop.early_energy:.0%} (re-matched heads {loop.early_rolled_heads:.0%})" for loop in forecast
    )
    passed = sum(loop.passed_early for loop in forecast)
    outcome = (
        f"{'it does' if passed else 'it does not'}"
        if len(forecast) == 1
        else "they do"
        if passed == len(forecast)
        else f"{passed or 'none'} of them do{'es' * (passed < 2)}"
    )
    return Finding(
        f"The weights forecast that {_layers([loop.layer for loop in forecast])}, iterated alone, first "
        f"gather{'s' * (len(forecast) == 1)} in the space of M0, a phase of its own: {outcome}.",
        f"peak energy there {peaks}, asked {PASSES:.0%}; "
        f"the forecast is right in {right} of {len(loops)} layers{spin}",
        "supported" if right == len(loops) else "weak",
    )


def _matching(weights: WeightAudit) -> Finding:
    matched = sum(h.trace_rank >= 1 for h in weights.heads)
    per_layer = len(weights.heads) // len(weights.layers)
    chance = len(weights.heads) / max(per_layer, 1)
    return Finding(
        f"In {matched} of {len(weights.heads)} heads, values match their own scores better than any other head's.",
        f"|tr M_h| exceeds all |tr(A_h B_h'^T)| of the layer; chance would give about {chance:.0f}",
        "supported" if matched > 2 * chance else "weak",
    )


def _bottleneck(weights: WeightAudit) -> Finding:
    ranks = [layer.stable_rank for layer in weights.layers]
    spread = dict.fromkeys(f"{rank:.0f}" for rank in (min(ranks), max(ranks)))
    pairs = [weights.shared_directions[i][j] for i in range(len(weights.layers)) for j in range(i) if i != j]
    shared = sum(pairs) / len(pairs) if pairs else 0.0
    return Finding(
        f"A layer writes to about {' to '.join(spread)} directions out of {weights.layers[0].d}.",
        f"stable rank of sum A; layers share {shared:.1%} of their dominant spaces "
        f"(chance: {weights.shared_by_chance:.1%})",
        "measured",
    )


def _enough(text: TextAudit) -> bool:
    """More than one text, and texts of some length."""
    return text.texts > 1 and text.tokens >= SHORT * text.texts


def _span(values: Sequence[float]) -> str:
    return f"{min(values):.2g} to {max(values):.2g}"


def _layers(numbers: Sequence[int]) -> str:
    words = [str(n) for n in numbers]
    return f"layer {words[0]}" if len(words) == 1 else f"layers {', '.join(words[:-1])} and {words[-1]}"
