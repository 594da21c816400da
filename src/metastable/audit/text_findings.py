"""What attention does on texts, in sentences."""

from __future__ import annotations

from metastable.audit.finding import Finding, layers_in_words, listed, span, two_decimals
from metastable.audit.scorecard import COLD
from metastable.audit.text import TextAudit

SINK = 0.25
"""Share of a head's attention on one token from which that token is told as a sink: a rule of thumb."""
REACHED = 0.9
"""Mean cosine of the zero-temperature forecast from which its limit is called reached: a rule of thumb."""
TIE = 0.02
"""Cosines that differ by no more than this are told as equal: paragraphs of one book scatter by 0.02 to 0.06."""
SHORT = 16
"""Mean number of tokens below which nothing measured on text is called more than weak."""
GROWTH = 0.05
"""Growth of the mean cosine from first to last layer from which tokens are said to grow more alike."""


def text_findings(text: TextAudit) -> list[Finding]:
    """The sentences that only texts can decide."""
    said = [_short(text), _forecast(text), _closures(text), _sinks(text), _collapse(text)]
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


def temperature_on_text(text: TextAudit) -> Finding:
    """Whether attention is cold by the size of its scores, and whether its limit forecasts it."""
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
        f"kappa {span([layer.kappa for layer in text.layers])}, kappa/(d_eff - 1) {span(ratios)} over layers; "
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


def _closures(text: TextAudit) -> Finding:
    own = {k: v for k, v in text.closures.items() if k != "none"}
    top = max(own.values())
    best = [k for k, v in own.items() if v >= top - TIE]
    gain = top - text.closures["none"]
    error = max(text.closures_spread[k] for k in best) + text.closures_spread["none"]
    told = listed([k.replace("_", " ") for k in best])
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
        f"they are in {layers_in_words(sorted({h.layer for h in heavy}), len(text.layers))}; "
        f"uniform attention would give one token {1 / length:.1%}",
        "measured",
    )


def _collapse(text: TextAudit) -> Finding:
    first, last = text.layers[0], text.layers[-1]
    grows = last.mean_cosine > first.mean_cosine + GROWTH
    return Finding(
        f"Tokens of {_one(text)} {'' if grows else 'do not '}grow more alike with depth.",
        f"mean cosine {first.mean_cosine:.2f} -> {last.mean_cosine:.2f}, "
        f"effective rank {first.effective_rank:.0f} -> {last.effective_rank:.0f} from first to last layer's input",
        "measured",
    )


def _mean_cosine(text: TextAudit, name: str) -> float:
    return sum(f.cosine[name] for f in text.forecasts) / len(text.forecasts)


def _mean_control(text: TextAudit, name: str) -> float | None:
    known = [v for f in text.forecasts if (v := f.control[name]) is not None]
    return sum(known) / len(known) if known else None


def _beside(text: TextAudit, name: str) -> str:
    """A forecast's mean cosine beside its control's, in which heads use the scores of other heads."""
    control = _mean_control(text, name)
    own = two_decimals(_mean_cosine(text, name))
    return own if control is None else f"{own} (control: {two_decimals(control)})"


def _one(text: TextAudit) -> str:
    return f"{'an' if text.item[0] in 'aeiou' else 'a'} {text.item}"


def _enough(text: TextAudit) -> bool:
    """More than one text, and texts of some length."""
    return text.texts > 1 and text.tokens >= SHORT * text.texts
