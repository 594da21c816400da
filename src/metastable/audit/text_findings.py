"""What attention does on texts, in sentences: each at a stated length, or over lengths where they matter."""

from __future__ import annotations

import math
from collections.abc import Sequence

from metastable.audit.closures import SEES_SINKS
from metastable.audit.finding import Finding, layers_in_words, listed, span, two_decimals
from metastable.audit.heads import WeightAudit
from metastable.audit.rate import Rate
from metastable.audit.scorecard import COLD
from metastable.audit.text import TextAudit
from metastable.audit.text_lengths import SINK

REACHED = 0.9
"""Mean cosine of the zero-temperature forecast from which its limit is called reached: a rule of thumb."""
TIE = 0.02
"""Cosines that differ by no more than this are told as equal: paragraphs of one book scatter by 0.02 to 0.06."""
SHORT = 16
"""Mean number of tokens below which nothing measured on text is called more than weak."""
ANOTHER = 2 * math.sqrt(2)
"""Standard errors of a mean over texts within which that of as many other texts is: two of their difference."""
STEADY = 0.1
"""Change along the lengths, as a share of all heads, below which a number of heads is said to be about the same."""


def text_findings(text: TextAudit, weights: WeightAudit) -> list[Finding]:
    """The sentences that only texts can decide."""
    said = [
        _short(text),
        _forecast(text),
        _closures(text),
        _sinks(text),
        _copying(text, weights),
        _directions(text),
    ]
    return [finding for finding in said if finding is not None]


def _short(text: TextAudit) -> Finding | None:
    if text.length >= SHORT:
        return None
    return Finding(
        f"The {text.item}s are too short to say much: {text.length:.0f} tokens each, special tokens included.",
        f"with fewer than {SHORT} tokens a mean and covariance fit almost anything, and d_eff is at most "
        f"{text.length - 1:.0f}",
        "weak",
        "short",
        {"length": text.length},
    )


def temperature_on_text(text: TextAudit) -> Finding:
    """Whether attention is cold by the size of its scores, and whether its limit forecasts it."""
    ratios = [layer.kappa_over_dimension for layer in text.layers]
    limit = _mean_cosine(text, "zero_temperature")
    reached = limit >= REACHED
    cold = "cold" if min(ratios) > COLD else "warm" if max(ratios) < 1 / COLD else "between"
    verdict = {
        "cold": "attention is cold by the size of its scores, "
        + (
            "and its zero-temperature limit forecasts it."
            if reached
            else "yet its zero-temperature limit does not forecast it."
        ),
        "warm": "attention is warm in every layer: tokens average over many others.",
        "between": "attention is neither cold nor warm in all layers; "
        + ("its zero-temperature limit forecasts it." if reached else "the zero-temperature limit is not reached."),
    }[cold]
    curve = [(p.tokens, min(p.kappa_over_dimension), max(p.kappa_over_dimension)) for p in text.lengths]
    over = "; over length: " + ", ".join(f"{low:.2g} to {high:.2g} at {n}" for n, low, high in curve)
    evidence = (
        f"kappa {span([layer.kappa for layer in text.layers])}, kappa/(d_eff - 1) {span(ratios)} over layers"
        f"{over if curve else ''} (d_eff is at most the number of tokens minus 1); cosine of the zero-temperature "
        f"forecast with the truth {_beside(text, 'zero_temperature')}, reached from {REACHED:g} on"
    )
    return Finding(
        f"At {_length(text)}, {verdict}",
        evidence,
        "measured" if text.length >= SHORT else "weak",
        "temperature",
        {
            "length": text.length,
            "kappa": [layer.kappa for layer in text.layers],
            "ratio": ratios,
            "cosine": limit,
            "verdict": cold,
            "reached": reached,
            "lengths": [p.tokens for p in text.lengths],
            "ratio_over_length": [p.kappa_over_dimension for p in text.lengths],
        },
    )


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
    places = (
        f"; {text.positional} layers have positions in their scores: in the truth and in all forecasts but the "
        "zero-temperature limit"
        if text.positional
        else ""
    )
    evidence = (
        f"mean cosine {_beside(text, best)}; {others}; the best{f' within {TIE:g}' * plain} in {first} of "
        f"{len(text.forecasts)} layers; control: other heads' scores; at {_length(text)}{places}"
    )
    most = _enough(text) and 2 * first > len(text.forecasts)
    ties = [name for name in names if _mean_cosine(text, name) >= _mean_cosine(text, best) - TIE and name != best]
    alike = " and alike by ".join(names[name] for name in [best, *ties])
    control = _mean_control(text, best)
    same = not plain and control is not None and _mean_cosine(text, best) - control <= TIE
    beats = not same and all(f.cosine[best] - (f.control[best] or 0.0) > 2 * f.spread[best] for f in text.forecasts)
    sentence = (
        "Averaged over layers, the mean of the tokens (uniform attention) forecasts what attention adds to a token "
        "as well as anything: scores add next to nothing."
        if plain
        else f"Averaged over layers, what attention adds to a token is forecast best by {alike}"
        + (", with no difference from the control." if same else ".")
    )
    return Finding(
        sentence,
        evidence,
        "supported" if most and (plain or beats) else "weak",
        "forecast",
        {
            "best": best,
            "alike": ties,
            "cosine": {name: _mean_cosine(text, name) for name in names},
            "control": {name: _mean_control(text, name) for name in names},
            "best_in": first,
            "layers": len(text.forecasts),
        },
    )


def _closures(text: TextAudit) -> Finding:
    fair = {k: text.closures[k] for k in SEES_SINKS}
    top = max(fair.values())
    best = [k for k, v in fair.items() if v >= top - TIE]
    gain = top - text.closures["none"]
    error = max(text.closures_spread[k] for k in best) + text.closures_spread["none"]
    told = listed([k.replace("_", " ") for k in best])
    rest = {k: v for k, v in text.closures.items() if k not in SEES_SINKS and k != "none"}
    return Finding(
        f"Of the simple substitutes for softmax that attend the first and last token as it does, {told} "
        f"keep{'s' * (len(best) == 1)} most of the final embedding"
        + ("." if gain > max(TIE, 2 * error) else ", with no difference from no attention at all."),
        f"{_cosines(fair)}; without the first and last token apart {_cosines(rest)}; no attention at all "
        f"{text.closures['none']:.2f} (cosine with the true one, {text.texts} {text.item}s at {_length(text)})",
        "supported" if _enough(text) and gain > max(TIE, 2 * error) else "weak",
        "closures",
        {"cosine": text.closures, "spread": text.closures_spread, "best": best},
    )


def _sinks(text: TextAudit) -> Finding | None:
    if text.length * SINK < 2:
        return None
    heavy = [h for h in text.heads if h.sink >= SINK]
    count = len(text.heads)
    curve = [(p.tokens, p.sink_heads) for p in text.lengths]
    trend = ""
    if len(curve) > 1:
        (start, first), (stop, last) = curve[0], curve[-1]
        where = f"in {text.lengths[-1].texts} {text.item}s that reach {stop} tokens"
        trend = f"; {where} it is {first} at {start} tokens and {last} at {stop}"
        if abs(last - first) < STEADY * count:
            trend += ", about the same"
    ends = sum(h.sink_position != 1 for h in heavy)
    others = [sum(h.sink + way * h.sink_error >= SINK for h in text.heads) for way in (-ANOTHER, ANOTHER)]
    where = layers_in_words(sorted({h.layer for h in heavy}), len(text.layers)) if heavy else ""
    over = ", ".join(f"{heads} at {n}" for n, heads in curve)
    return Finding(
        f"At {_length(text)}, {len(heavy) or 'none'} of {count} heads{_others(text, others)} "
        f"send{'s' * (len(heavy) < 2)} a quarter or more of all attention to one token{trend}.",
        (
            f"in {ends} of them that token is the first or the last; they are in {where}"
            if heavy
            else f"the largest share is {max(h.sink for h in text.heads):.0%}"
        )
        + f"; other {text.item}s: within two standard errors of the difference of two means over {text.texts} each"
        + f"; uniform attention would give one token {1 / text.length:.1%}"
        + (f"; over length: {over} tokens ({text.lengths[0].texts} {text.item}s)" if curve else ""),
        "measured" if _enough(text) else "weak",
        "sinks",
        {
            "length": text.length,
            "heads": len(heavy),
            "of": count,
            "on_others": others,
            "first_or_last": ends,
            "lengths": [n for n, _ in curve],
            "over_length": [heads for _, heads in curve],
        },
    )


def _copying(text: TextAudit, weights: WeightAudit) -> Finding:
    """Emission along what is attended: a cosine counts beyond two errors, and beyond that of a random direction."""
    d = weights.layers[0].d_eff
    chance = 2 / math.sqrt(d)
    least = {id(h): max(chance, 2 * h.copying_error) for h in text.heads}
    decided = [h for h in text.heads if text.texts > 1 and abs(h.copying) > least[id(h)]]
    copies = sum(h.copying > 0 for h in decided)
    suppresses = len(decided) - copies
    ways = (-ANOTHER, ANOTHER)
    along, against = (
        [sum(sign * h.copying + way * h.copying_error > least[id(h)] for h in text.heads) for way in ways]
        for sign in (1, -1)
    )
    traces = {(h.layer, h.head): h.trace for h in weights.heads}
    agree = sum((traces[h.layer, h.head] > 0) == (h.copying > 0) for h in decided)
    count = len(text.heads)
    return Finding(
        f"{copies} of {count} heads{_others(text, along)} copy what they attend, {suppresses}"
        f"{_others(text, against, said=True)} suppress it, and {count - len(decided)} do neither.",
        f"mean cosine between a head's emission and what it attended {span([h.copying for h in text.heads])}; "
        f"asked more than {chance:.2f} (two standard deviations of a random direction) and two standard errors "
        f"over {text.texts} {text.item}s; the sign of tr M agrees in {Rate.of(agree, len(decided))}",
        "measured" if _enough(text) else "weak",
        "copying",
        {
            "copies": copies,
            "suppresses": suppresses,
            "of": count,
            "chance": chance,
            "trace_agrees": agree,
            "copies_on_others": along,
            "suppresses_on_others": against,
        },
    )


def _directions(text: TextAudit) -> Finding:
    used = [layer.directions for layer in text.layers]
    low, high = f"{min(used):.0f}", f"{max(used):.0f}"
    between = low if low == high else f"{low} to {high}"
    return Finding(
        f"On these {text.item}s the updates of a layer use about {between} directions.",
        f"participation ratio of the covariance of the updates of {text.tokens} tokens, layer by layer "
        f"{', '.join(f'{l.directions:.0f} ± {l.directions_error:.1f}' for l in text.layers)} (standard errors over "
        f"groups of {text.item}s); no more than the tokens allow",
        "measured" if _enough(text) else "weak",
        "directions",
        {"directions": used, "error": [layer.directions_error for layer in text.layers], "tokens": text.tokens},
    )


def _cosines(values: dict[str, float]) -> str:
    return ", ".join(f"{k.replace('_', ' ')} {two_decimals(v)}" for k, v in values.items())


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


def _others(text: TextAudit, ends: Sequence[int], said: bool = False) -> str:
    """The numbers of heads to expect on as many other texts of the kind; said: whether that was said before."""
    if text.texts < 2:
        return ""
    low, high = ends
    where = "" if said else f" on other such {text.item}s"
    return f" ({low if low == high else f'{low} to {high}'}{where})"


def _length(text: TextAudit) -> str:
    one = f"{'an' if text.item[0] in 'aeiou' else 'a'} {text.item}"
    return f"{text.length:.0f} tokens {one}"


def _enough(text: TextAudit) -> bool:
    """More than one text, and texts of some length."""
    return text.texts > 1 and text.length >= SHORT
