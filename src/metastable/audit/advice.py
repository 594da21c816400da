"""Advice: what a person who ships the encoder could do, each tried on the model itself beside a random control.

Everything is read off the final embedding: its cosine with the embedding of the unchanged model, averaged over the
given texts. What does not keep it, or does so no better than its control, is not advised.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from metastable.arguments import OneLine
from metastable.audit.ablation import (
    as_far,
    cosines,
    replaced_matrices,
    rounded,
    sinks_replaced,
    unshared,
    without_block,
    without_heads,
)
from metastable.audit.finding import layers_in_words
from metastable.audit.spread import mean, standard_error
from metastable.audit.text import attention_summary
from metastable.encoders import Encoder

TEXTS = 8
"""Texts on which advice is tried: a trial runs the model once per text, and a model of 12 layers has 300 trials."""
KEPT = 0.98
"""Mean cosine with the true embedding from which a change is advised: a rule of thumb, told beside the number."""
MOST_HEADS = 144
"""Heads that are tried alone, at most: all of BERT-base. Of a larger model so many are drawn, which is told."""
DRAWS = 5
"""Random choices of as many heads that the chosen ones must beat, all of them."""
SHARES = (0.5, 0.25, 0.125)
"""Shares of all heads that are left out together, the largest first."""
SINK = 0.25
"""Share of a head's attention on one token from which its value is tried without."""
BITS = (8, 4)
"""Bits to which the matrices of a block are rounded."""
LENGTHS = (0.125, 0.25, 0.5, 0.75)
"""Parts of a text that are read instead of the whole."""


@dataclass(frozen=True, repr=False)
class Advice(OneLine):
    """One thing to try: what, the numbers behind it, and the control that it was measured against."""

    topic: str
    sentence: str
    evidence: str
    kept: float
    """Mean cosine of the embedding with the unchanged one."""
    control: float
    """The same after the random control."""


def advise(
    encoder: Encoder, items: Sequence[Any], report: Callable[[str], None] = lambda line: None, *, seed: int = 0
) -> list[Advice]:
    """What could be done with this encoder, as far as these texts show it; nothing where nothing helps."""
    chosen = [items[i * len(items) // min(TEXTS, len(items))] for i in range(min(TEXTS, len(items)))]
    if len(chosen) < 2:
        return []
    own = encoder.embed(chosen)
    found: list[Advice | None] = []
    for topic, trial in TRIALS.items():
        report(f"advice: {topic}")
        found.append(trial(Trial(encoder, chosen, own, seed, report)))
    return [advice for advice in found if advice is not None]


@dataclass(frozen=True, eq=False)
class Trial:
    """What every trial is given: the model, some texts and their embeddings, a seed, and whom to tell."""

    encoder: Encoder
    items: Sequence[Any]
    own: Tensor
    seed: int
    report: Callable[[str], None]


def _heads(trial: Trial) -> Advice | None:
    """Heads chosen on every other text by what each alone takes away, left out together on the rest."""
    encoder, items, own = trial.encoder, trial.items, trial.own
    if not unshared(encoder):
        return None
    every = [(l, h) for l, layer in enumerate(encoder.layers) for h in range(len(layer.heads))]
    first, second = items[::2], items[1::2]
    generator = torch.Generator().manual_seed(trial.seed)
    tried = every
    if len(every) > MOST_HEADS:
        tried = [every[i] for i in torch.randperm(len(every), generator=generator)[:MOST_HEADS].sort()[0].tolist()]
    loss = {}
    for i, head in enumerate(tried):
        trial.report(f"advice: head {i + 1} of {len(tried)}")
        with without_heads(encoder, [head]):
            loss[head] = 1 - float(cosines(encoder, first, own[::2]).mean())
    ranked = sorted(tried, key=lambda head: loss[head])
    drawn = "" if tried is every else f" ({len(tried)} of {len(every)} heads, drawn at random)"
    for share in SHARES:
        count = round(share * len(every))
        if not 1 <= count <= len(tried):
            continue
        kept = _kept_without(encoder, ranked[:count], second, own[1::2])
        if kept < KEPT:
            continue
        draws = [
            _kept_without(
                encoder,
                [every[i] for i in torch.randperm(len(every), generator=generator)[:count].tolist()],
                second,
                own[1::2],
            )
            for _ in range(DRAWS)
        ]
        if kept <= max(draws):
            return None
        places = sorted({l for l, _ in ranked[:count]})
        random = f"{statistics.mean(draws):.3f} ({min(draws):.3f} to {max(draws):.3f} in {DRAWS} draws)"
        listed = ", ".join(f"{l}.{h}" for l, h in sorted(ranked[:count])[:12])
        more = ", ..." if count > 12 else ""
        return Advice(
            "heads",
            f"{count} of {len(every)} heads can be left out together: the embedding keeps a cosine of {kept:.3f}.",
            f"chosen on {len(first)} texts by what each alone takes away{drawn}, tried on {len(second)} others; as "
            f"many random heads keep {random}; layer.head: {listed}{more} "
            f"(in {layers_in_words(places, len(encoder.layers))})",
            kept,
            statistics.mean(draws),
        )
    return None


def _kept_without(encoder: Encoder, heads: Sequence[tuple[int, int]], items: Sequence[Any], own: Tensor) -> float:
    with without_heads(encoder, heads):
        return float(cosines(encoder, items, own).mean())


def _blocks(trial: Trial) -> Advice | None:
    """Blocks that change little: skipped alone."""
    encoder, items, own = trial.encoder, trial.items, trial.own
    if not unshared(encoder) or len(encoder.layers) < 2:
        return None
    kept = []
    for l in range(len(encoder.layers)):
        with without_block(encoder, l):
            kept.append(float(cosines(encoder, items, own).mean()))
    best = max(range(len(kept)), key=lambda l: kept[l])
    others = statistics.mean(v for l, v in enumerate(kept) if l != best)
    if kept[best] < KEPT:
        return None
    return Advice(
        "blocks",
        f"Block {best} (attention and MLP) can be skipped: the embedding keeps a cosine of {kept[best]:.3f}.",
        f"skipping another block keeps {others:.3f} on average; by block " + ", ".join(f"{v:.2f}" for v in kept),
        kept[best],
        others,
    )


def _sinks(trial: Trial) -> Advice | None:
    """Heads that send much of their attention to one token, whose value is taken out."""
    encoder, items, own = trial.encoder, trial.items, trial.own
    shares = torch.zeros(len(encoder.layers), len(encoder.layers[0].heads), dtype=torch.float64)
    for item in items:
        for l, points in enumerate(encoder.points([item])[0]):
            shares[l] += attention_summary(encoder.layers[l], points)[1].cpu() / len(items)
    heads = [(int(l), int(h)) for l, h in (shares >= SINK).nonzero().tolist()]
    if not heads:
        return None
    without, instead = (
        (encoder.embed(items, sinks_replaced(heads, with_other, trial.seed)) * own).sum(dim=1)
        for with_other in (False, True)
    )
    kept, other = float(without.mean()), float(instead.mean())
    better = (without - instead).tolist()
    if kept < KEPT or mean(better) <= 2 * standard_error(better):
        return None
    part = float(shares[shares >= SINK].mean())
    return Advice(
        "sinks",
        f"In {len(heads)} heads the most attended token carries no content that the embedding needs: with its "
        f"value set to zero the embedding keeps a cosine of {kept:.3f}.",
        f"these heads send {part:.0%} of their attention there; with the value of a random other token instead it "
        f"keeps {other:.3f}, less by {mean(better):.4f} ± {standard_error(better):.4f} (two errors are asked). "
        "What such a head attends to there explains nothing: it is a way to do nothing",
        kept,
        other,
    )


def _length(trial: Trial) -> Advice | None:
    """How much of a text the embedding needs."""
    encoder, items, own = trial.encoder, trial.items, trial.own
    if encoder.inputs.kind != "text":
        return None
    lengths = [len(row["input_ids"][0]) for row in encoder.inputs.prepare(list(items)) if isinstance(row, dict)]
    usual = statistics.median(lengths)
    strangers = float((own[0] * own[1]).sum()) if len(own) == 2 else float(_pairs(own).mean())
    curve: dict[int, float] = {}
    for part in LENGTHS:
        limit = max(2, round(part * usual))
        short = replace(encoder, inputs=replace(encoder.inputs, max_tokens=limit))
        curve[limit] = float(cosines(short, items, own).mean())
    enough = next((limit for limit, kept in sorted(curve.items()) if kept >= KEPT), None)
    if enough is None or enough >= usual or curve[enough] <= strangers:
        return None
    return Advice(
        "length",
        f"Texts can be cut after {enough} tokens instead of {usual:.0f}: the embedding keeps a cosine of "
        f"{curve[enough]:.3f}.",
        "by tokens read: "
        + ", ".join(f"{limit} {kept:.3f}" for limit, kept in sorted(curve.items()))
        + f"; two different texts have {strangers:.3f}",
        curve[enough],
        strangers,
    )


def _rounding(trial: Trial) -> Advice | None:
    """Which block suffers most when its matrices are rounded."""
    encoder, items, own, seed = trial.encoder, trial.items, trial.own, trial.seed
    if not unshared(encoder):
        return None
    every = range(len(encoder.layers))
    together: dict[int, tuple[float, float]] = {}
    for bits in BITS:
        pair = []
        for change in (rounded(bits), as_far(rounded(bits), seed)):
            with replaced_matrices(encoder, every, change):
                pair.append(float(cosines(encoder, items, own).mean()))
        together[bits] = (pair[0], pair[1])
    low = min(BITS)
    alone = []
    for l in every:
        with replaced_matrices(encoder, [l], rounded(low)):
            alone.append(float(cosines(encoder, items, own).mean()))
    worst = min(every, key=lambda l: alone[l])
    with replaced_matrices(encoder, [worst], as_far(rounded(low), seed)):
        noise = float(cosines(encoder, items, own).mean())
    safe = [bits for bits in BITS if together[bits][0] >= KEPT]
    if not safe:
        return None
    bits = min(safe)
    told = "; ".join(f"{b} bits keep {k:.4f} (noise of the same size {c:.4f})" for b, (k, c) in together.items())
    return Advice(
        "rounding",
        f"All blocks can be rounded to {bits} bits: the embedding keeps a cosine of {together[bits][0]:.4f}; the "
        f"most sensitive block is {worst}.",
        f"{told}; one block alone at {low} bits: "
        + ", ".join(f"{v:.3f}" for v in alone)
        + f" (noise of the same size in block {worst}: {noise:.3f})",
        *together[bits],
    )


def _pairs(own: Tensor) -> Tensor:
    """Cosines between all pairs of different texts."""
    n = len(own)
    rows, columns = torch.triu_indices(n, n, 1)
    return (own @ own.T)[rows, columns]


TRIALS: dict[str, Callable[[Trial], Advice | None]] = {
    "heads": _heads,
    "blocks": _blocks,
    "sinks": _sinks,
    "length": _length,
    "rounding": _rounding,
}
"""What is tried, by topic."""
