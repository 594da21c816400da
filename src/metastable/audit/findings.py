"""What was found, in plain sentences, each with the evidence and the confidence that it deserves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metastable.audit.heads import WeightAudit
from metastable.audit.loop import EARLY_ENERGY, EARLY_RATIO, TERMINAL_ENERGY, LoopAudit
from metastable.audit.scorecard import COLD
from metastable.audit.text import TextAudit
from metastable.encoders import Encoder

SINK = 0.25
REACHED = 0.9
"""Mean cosine of the zero-temperature forecast from which its limit is called reached."""
TIE = 0.02
"""Cosines that differ by no more than this are told as equal."""
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
    "Numbers measured on texts (or images) belong to these; others give other numbers.",
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
        f"The {text.item}s are too short to say much: {length:.0f} tokens each, special tokens included.",
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
        f"cosine of the zero-temperature forecast with the truth {_beside(text, 'zero_temperature')}, "
        f"reached from {REACHED:g} on"
    )
    return Finding(verdict, evidence, "measured" if text.tokens >= SHORT * text.texts else "weak")


def _forecast(text: TextAudit) -> Finding:
    names = {
        "gaussian": "the mean and covariance of the tokens (Gaussian tilt)",
        "argmax": "each token's best key alone (argmax)",
        "uniform": "the mean of the tokens (uniform attention)",
        "zero_temperature": "the zero-temperature limit",
    }
    best = max(names, key=lambda name: _mean_cosine(text, name))
    plain = _mean_cosine(text, "uniform") >= _mean_cosine(text, best) - TIE
    best = "uniform" if plain else best
    first = sum(f.cosine[best] >= max(f.cosine.values()) - TIE * plain for f in text.forecasts)
    others = ", ".join(f"{n.replace('_', ' ')} {_beside(text, n)}" for n in names if n != best)
    evidence = (
        f"mean cosine {_beside(text, best)}; {others}; the best{f' within {TIE:g}' * plain} in {first} of "
        f"{len(text.forecasts)} layers; control: other heads' scores"
    )
    most = _enough(text) and 2 * first > len(text.forecasts)
    if plain:
        return Finding(
            "Averaged over layers, the mean of the tokens (uniform attention) forecasts what attention adds to a "
            "token as well as anything: scores add next to nothing.",
            evidence,
            "supported" if most else "weak",
        )
    control = _mean_control(text, best)
    beats = (control is None or _mean_cosine(text, best) - control > TIE) and all(
        f.cosine[best] - (f.control[best] or 0.0) > 2 * f.spread[best] for f in text.forecasts
    )
    return Finding(
        f"Averaged over layers, what attention adds to a token is forecast best by {names[best]}.",
        evidence,
        "supported" if most and beats else "weak",
    )


def _mean_cosine(text: TextAudit, name: str) -> float:
    return sum(f.cosine[name] for f in text.forecasts) / len(text.forecasts)


def _mean_control(text: TextAudit, name: str) -> float | None:
    known = [v for f in text.forecasts if (v := f.control[name]) is not None]
    return sum(known) / len(known) if known else None


def _beside(text: TextAudit, name: str) -> str:
    """A forecast's mean cosine beside its control's, in which heads use the scores of other heads."""
    control = _mean_control(text, name)
    own = _two(_mean_cosine(text, name))
    return own if control is None else f"{own} (control: {_two(control)})"


def _closures(text: TextAudit) -> Finding:
    own = {k: v for k, v in text.closures.items() if k != "none"}
    top = max(own.values())
    best = [k for k, v in own.items() if v >= top - TIE]
    gain = top - text.closures["none"]
    error = max(text.closures_spread[k] for k in best) + text.closures_spread["none"]
    told = _listed([k.replace("_", " ") for k in best])
    return Finding(
        f"Of the simple substitutes for softmax, {told} keep{'s' * (len(best) == 1)} most of the final embedding.",
        ", ".join(f"{k.replace('_', ' ')} {v:.2f}" for k, v in own.items())
        + f"; no attention at all {text.closures['none']:.2f} (cosine with the true one)",
        "supported" if _enough(text) and gain > max(TIE, 2 * error) else "weak",
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
        f"{len(heavy)} of {len(text.heads)} heads send a quarter or more of all attention to one token of "
        f"{_one(text)}.",
        f"in {ends} of them that token is the first or the last; "
        f"they are in {_layers(sorted({h.layer for h in heavy}), len(text.layers))}; "
        f"uniform attention would give one token {1 / length:.1%}",
        "measured",
    )


def _collapse(text: TextAudit) -> Finding:
    first, last = text.layers[0], text.layers[-1]
    grows = last.mean_cosine > first.mean_cosine + 0.05
    return Finding(
        f"Tokens of {_one(text)} {'' if grows else 'do not '}grow more alike with depth.",
        f"mean cosine {first.mean_cosine:.2f} -> {last.mean_cosine:.2f}, "
        f"effective rank {first.effective_rank:.0f} -> {last.effective_rank:.0f} from first to last layer's input",
        "measured",
    )


def _terminal(loops: Sequence[LoopAudit]) -> Finding:
    right = [loop for loop in loops if loop.terminal_holds]
    wrong = max((w for loop in right or loops if (w := loop.terminal_wrong_layer) is not None), default=None)
    against = (
        "there is no other layer to compare with"
        if wrong is None
        else (f"the space of another layer holds at most {wrong:.0%}")
    )
    if not right:
        moving = sum(not loop.settled for loop in loops)
        return Finding(
            "Iterated alone, no layer ends in the dominant space of its values sum A.",
            f"energy there at the end {_percent([loop.terminal_energy for loop in loops])}, "
            f"asked {TERMINAL_ENERGY:.0%}; {against}; {moving} of {len(loops)} were still moving",
            "measured",
        )
    missed = [loop.layer for loop in loops if not loop.terminal_holds]
    but = f"; {_layers(missed)} do{'es' * (len(missed) == 1)} not" if missed else ""
    return Finding(
        f"Iterated alone, {_layers([loop.layer for loop in right], len(loops))} end{'s' * (len(right) == 1)} where "
        f"the weights say, in the dominant space of sum A{but}.",
        f"at least {min(loop.terminal_energy for loop in right):.0%} of the energy (asked: {TERMINAL_ENERGY:.0%}); "
        f"{against}; the forecast is right in {len(right)} of {len(loops)} layers",
        "supported" if wrong is not None and wrong < 0.5 and 2 * len(right) > len(loops) else "weak",
    )


def _early(weights: WeightAudit, loops: Sequence[LoopAudit]) -> Finding:
    forecast = [loop for loop in loops if loop.forecast_early]
    right = sum(loop.early_holds for loop in loops)
    rolled = [c for loop in loops if (c := loop.early_rolled_heads) is not None]
    rotating = [layer.layer for layer in weights.layers if layer.product_is_complex]
    spin = f"; M0 has a complex dominant pair in {_layers(rotating, len(loops))}" if rotating else ""
    if not forecast:
        return Finding(
            "No layer is forecast to have a separate early phase.",
            f"Re lambda(M0)/Re lambda(sum A) is below {EARLY_RATIO:g} everywhere; peak energy in the space of M0 "
            f"{_percent([loop.early_energy for loop in loops])}"
            + (f" (re-matched heads {_percent(rolled)})" if rolled else "")
            + f"; right in {right} of {len(loops)} layers{spin}",
            "supported" if right == len(loops) else "weak",
        )
    peaks = ", ".join(
        f"{loop.early_energy:.0%}"
        + (f" (re-matched heads {c:.0%})" if (c := loop.early_rolled_heads) is not None else " (no control)")
        for loop in forecast
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
        f"The weights forecast that {_layers([loop.layer for loop in forecast], len(loops))}, iterated alone, "
        f"first gather{'s' * (len(forecast) == 1)} in the space of M0, a phase of its own: {outcome}.",
        f"peak energy there {peaks}, asked {EARLY_ENERGY:.0%}; "
        f"the forecast is right in {right} of {len(loops)} layers{spin}",
        "supported" if right == len(loops) and all(p.early_rolled_heads is not None for p in forecast) else "weak",
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


def _one(text: TextAudit) -> str:
    return f"{'an' if text.item[0] in 'aeiou' else 'a'} {text.item}"


def _enough(text: TextAudit) -> bool:
    """More than one text, and texts of some length."""
    return text.texts > 1 and text.tokens >= SHORT * text.texts


def _span(values: Sequence[float]) -> str:
    return f"{min(values):.2g} to {max(values):.2g}"


def _two(value: float) -> str:
    """Two decimals, and no "-0.00"."""
    return f"{round(value, 2) + 0.0:.2f}"


def _percent(values: Sequence[float]) -> str:
    low, high = f"{min(values):.0%}", f"{max(values):.0%}"
    return low if low == high else f"{low} to {high}"


def _layers(numbers: Sequence[int], count: int | None = None) -> str:
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
    return f"layer{'s' * (len(numbers) > 1)} {_listed(words)}"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
