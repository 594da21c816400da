"""What the weights say, and what their layers do when iterated, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from metastable.audit.finding import Finding, by_layer, layers_in_words, listed
from metastable.audit.heads import WeightAudit
from metastable.audit.loop import EARLY_RATIO, LoopAudit
from metastable.audit.loop_run import GATHERED, PRODUCTS, TERMINAL_ENERGY, median_passes
from metastable.audit.rate import Rate


def weight_findings(weights: WeightAudit, loops: Sequence[LoopAudit]) -> list[Finding]:
    """The sentences that need no text."""
    said = [_terminal(loops), _early(weights, loops), _matching(weights), _bottleneck(weights)]
    return [finding for finding in said if finding is not None]


def _terminal(loops: Sequence[LoopAudit]) -> Finding:
    said = {verdict: [p.layer for p in loops if p.terminal_holds is verdict] for verdict in (True, False, None)}
    right = [p for p in loops if p.terminal_holds]
    same = [p.layer for p in right if p.ends_other is not None and not p.ends_values.beats(p.ends_other)]
    count = len(loops)
    missed = said[False]
    not_there = f"{layers_in_words(missed, count)} do{'es' * (len(missed) == 1)} not" if missed else ""
    ends = f"{layers_in_words(said[True], count)} end{'s' * (len(right) == 1)}" if right else "no layer ends"
    if not right and said[None]:
        ends = f"{not_there} end"
    parts = [f"Iterated alone, {ends} in the dominant space of sum A from most starts"]
    if right and missed:
        parts.append(not_there)
    if len(said[None]) == count:
        parts = ["Iterated alone: whether a layer ends in the top space of sum A from most starts cannot be told"]
    elif said[None]:
        parts.append(f"of {layers_in_words(said[None], count)} it cannot be told")
    if same:
        parts.append(f"in {layers_in_words(same, count)} there is no difference from the control")
    undecided = sum(p.undecided for p in loops)
    control = (
        "there is no other layer to compare with"
        if loops[0].ends_other is None
        else f"control, the space of another layer: {_most(p.ends_other for p in loops)}"
    )
    return Finding(
        "; ".join(parts) + ".",
        f"settled with {TERMINAL_ENERGY:.0%} of the energy there: {by_layer([str(p.ends_values) for p in loops])}; "
        f"{control}; {undecided} of {sum(p.starts for p in loops)} starts undecided; {started(loops)}",
        "measured" if not right else "supported" if not same and loops[0].ends_other is not None else "weak",
        "terminal",
        {
            "layers": {"yes": said[True], "no": said[False], "open": said[None]},
            "ends": [[p.ends_values.k, p.ends_values.n] for p in loops],
            "control": [None if p.ends_other is None else [p.ends_other.k, p.ends_other.n] for p in loops],
            "undecided": [p.undecided for p in loops],
        },
    )


def _early(weights: WeightAudit, loops: Sequence[LoopAudit]) -> Finding:
    forecast = [p for p in loops if p.forecast_early]
    rest = [p for p in loops if not p.forecast_early]
    count = len(loops)
    right, wrong = (sum(p.early_holds is verdict for p in loops) for verdict in (True, False))
    rotating = [layer.layer for layer in weights.layers if layer.product_is_complex]
    spin = f"; M0 has a complex dominant pair in {layers_in_words(rotating, count)}" if rotating else ""
    told = listed([_told(p) for p in forecast]) if forecast else ""
    all_the_same = [p.layer for p in rest if p.early]
    sentence = (
        f"The weights forecast that {layers_in_words([p.layer for p in forecast], count)}, iterated alone, "
        f"gather{'s' * (len(forecast) == 1)} in the space of M0 before that of sum A: {told}"
        if forecast
        else "No layer is forecast to gather in the space of M0 before that of sum A"
    )
    if all_the_same:
        sentence += (
            f"; {layers_in_words(all_the_same, count)} do{'es' * (len(all_the_same) == 1)} so without being "
            "forecast to"
        )
    until = [w for p in forecast if (w := median_passes(p.runs)) is not None]
    ahead = f"; until then sum A was ahead in {min(until):g} to {max(until):g} passes (median)" if until else ""
    control = [p.first_rematched for p in loops if p.first_rematched is not None]
    beside = f"control, re-matched heads: {_most(control)}" if control else "a single head has no control"
    return Finding(
        sentence + ".",
        f"M0 is the first to hold {GATHERED:.0%} of the energy: {by_layer([str(p.first_products) for p in loops])}"
        f"; {beside}{_by_tokens(forecast)}{ahead}; forecast: Re lambda(M0)/Re lambda(sum A) >= {EARLY_RATIO:g}; "
        f"it is right in {right}, wrong in {wrong} and undecided in {count - right - wrong} of {count} "
        f"layer{'s' * (count > 1)}{spin}; {started(loops)}",
        "supported" if right == count and control else "weak",
        "early",
        {
            "forecast": [p.layer for p in forecast],
            "early": [p.early for p in loops],
            "first": [[p.first_products.k, p.first_products.n] for p in loops],
            "control": [None if p.first_rematched is None else [p.first_rematched.k, p.starts] for p in loops],
            "right": right,
            "wrong": wrong,
        },
    )


def _told(loop: LoopAudit) -> str:
    """What became of the forecast of an early phase in one layer."""
    first, control = loop.first_products, loop.first_rematched
    if loop.early is None and first.verdict is True:
        return f"of layer {loop.layer} there is no difference from the control"
    if loop.early is None:
        return f"of layer {loop.layer} it cannot be told"
    if not loop.early:
        same = control is not None and not first.beats(control)
        return f"layer {loop.layer} does not" + (", no more than re-matched heads" if same else "")
    stays = sum(run.first == PRODUCTS and run.end == PRODUCTS for run in loop.runs)
    return f"layer {loop.layer} does" + (" and mostly stays there" if 2 * stays > first.k else "")


def _by_tokens(loops: Sequence[LoopAudit]) -> str:
    """How often M0 is first by the number of tokens, where an early phase was forecast."""
    told = []
    for loop in loops:
        sizes = sorted({run.tokens for run in loop.runs})
        counts = [[run.first == PRODUCTS for run in loop.runs if run.tokens == n] for n in sizes]
        rates = ", ".join(f"{sum(c)} of {len(c)} with {n}" for n, c in zip(sizes, counts, strict=True))
        told.append(f"; by tokens in layer {loop.layer}: {rates}")
    return "".join(told)


def started(loops: Sequence[LoopAudit]) -> str:
    """From where all layers were iterated."""
    runs = loops[0].runs
    kinds = {kind: sum(run.kind == kind for run in runs) for kind in dict.fromkeys(run.kind for run in runs)}
    sizes = sorted({run.tokens for run in runs})
    many = listed([f"{n} random" if kind == "random" else f"{n} from {kind}s" for kind, n in kinds.items()])
    return f"{len(runs)} starts a layer ({many}) of {', '.join(map(str, sizes))} tokens"


def _most(rates: Iterable[Rate | None]) -> str:
    """The largest of some rates."""
    found = [rate for rate in rates if rate is not None]
    top = max(found, key=lambda rate: rate.k / max(rate.n, 1))
    return f"at most {top}" if len(found) > 1 else str(top)


def _matching(weights: WeightAudit) -> Finding | None:
    per_layer = len(weights.heads) // len(weights.layers)
    if per_layer < 2:
        return None
    matched = Rate.of(sum(h.trace_rank >= 1 for h in weights.heads), len(weights.heads))
    return Finding(
        f"In {matched.k} of {matched.n} heads, values match their own scores better than any other head's"
        + ("." if matched.low > 1 / per_layer else ": no more than by chance."),
        f"|tr M_h| exceeds all |tr(A_h B_h'^T)| of the layer; chance would give about {len(weights.layers)}",
        "supported" if matched.low > 1 / per_layer else "weak",
        "matching",
        {"heads": matched.k, "of": matched.n, "chance": len(weights.layers), "low": matched.low},
    )


def _bottleneck(weights: WeightAudit) -> Finding:
    ranks = [layer.stable_rank for layer in weights.layers]
    spread = dict.fromkeys(f"{rank:.0f}" for rank in (min(ranks), max(ranks)))
    pairs = [weights.shared_directions[i][j] for i in range(len(weights.layers)) for j in range(i)]
    shared = sum(pairs) / len(pairs) if pairs else None
    share = (
        ""
        if shared is None
        else f"; layers share {shared:.1%} of their dominant spaces (chance: {weights.shared_by_chance:.1%})"
    )
    return Finding(
        f"The stable rank of sum A is {' to '.join(spread)} out of {weights.layers[0].d}: what the weights allow, "
        "not the number of directions that updates use.",
        f"|sum A|_F^2 / |sum A|^2{share}",
        "measured",
        "stable_rank",
        {"stable_rank": ranks, "d": weights.layers[0].d, "shared": shared, "chance": weights.shared_by_chance},
    )
