"""What the weights say, and what their layers do when iterated, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from metastable.audit.finding import Finding, layers_in_words, percents
from metastable.audit.heads import WeightAudit
from metastable.audit.loop import EARLY_ENERGY, EARLY_RATIO, TERMINAL_ENERGY, LoopAudit


def weight_findings(weights: WeightAudit, loops: Sequence[LoopAudit]) -> list[Finding]:
    """The sentences that need no text."""
    return [_terminal(loops), _early(weights, loops), _matching(weights), _bottleneck(weights)]


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
            f"energy there at the end {percents([loop.terminal_energy for loop in loops])}, "
            f"asked {TERMINAL_ENERGY:.0%}; {against}; {moving} of {len(loops)} were still moving",
            "measured",
        )
    missed = [loop.layer for loop in loops if not loop.terminal_holds]
    but = f"; {layers_in_words(missed)} do{'es' * (len(missed) == 1)} not" if missed else ""
    return Finding(
        f"Iterated alone, {layers_in_words([loop.layer for loop in right], len(loops))} "
        f"end{'s' * (len(right) == 1)} where the weights say, in the dominant space of sum A{but}.",
        f"at least {min(loop.terminal_energy for loop in right):.0%} of the energy (asked: {TERMINAL_ENERGY:.0%}); "
        f"{against}; the forecast is right in {len(right)} of {len(loops)} layers",
        "supported" if wrong is not None and wrong < 0.5 and 2 * len(right) > len(loops) else "weak",
    )


def _early(weights: WeightAudit, loops: Sequence[LoopAudit]) -> Finding:
    forecast = [loop for loop in loops if loop.forecast_early]
    right = sum(loop.early_holds for loop in loops)
    rolled = [c for loop in loops if (c := loop.early_rolled_heads) is not None]
    rotating = [layer.layer for layer in weights.layers if layer.product_is_complex]
    spin = f"; M0 has a complex dominant pair in {layers_in_words(rotating, len(loops))}" if rotating else ""
    if not forecast:
        return Finding(
            "No layer is forecast to have a separate early phase.",
            f"Re lambda(M0)/Re lambda(sum A) is below {EARLY_RATIO:g} everywhere; peak energy in the space of M0 "
            f"{percents([loop.early_energy for loop in loops])}"
            + (f" (re-matched heads {percents(rolled)})" if rolled else "")
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
        f"The weights forecast that {layers_in_words([loop.layer for loop in forecast], len(loops))}, "
        f"iterated alone, first gather{'s' * (len(forecast) == 1)} in the space of M0, "
        f"a phase of its own: {outcome}.",
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
