"""`Calibration`: what is learnt from texts that are as they should be, and the judgement that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from metastable.encoders.inputs import Inputs
from metastable.errors import InvalidInput
from metastable.monitor.batches import traces
from metastable.monitor.channels.apart import ApartLearner
from metastable.monitor.channels.channel import Channel, Evidence
from metastable.monitor.channels.characters import CharactersLearner, spellings
from metastable.monitor.channels.coherence import CoherenceLearner
from metastable.monitor.channels.lexical import LexicalLearner
from metastable.monitor.channels.looked import LookedLearner
from metastable.monitor.channels.pooled import PooledLearner
from metastable.monitor.channels.structure import StructureLearner
from metastable.monitor.channels.tokens import TokenLearner
from metastable.monitor.conformal import Conformal
from metastable.monitor.corruption import DISPLACED, REPLACED, content, corrupted
from metastable.monitor.drift import Blocks
from metastable.monitor.judgement import Judgement
from metastable.monitor.lengths import LengthTrend
from metastable.monitor.listening import Ear
from metastable.monitor.pairs import Pairs, embeddings
from metastable.monitor.score import Mark
from metastable.monitor.split import split
from metastable.monitor.trace import Trace
from metastable.monitor.weighing import weighted_sum

LEAST_TEXTS = 80
"""Fewer texts leave fewer than eight for the smallest of the three parts."""
LEAST_TOKENS = 4
"""A text with fewer content tokens has no structure: the smallest window has as many."""
OUTER = 0.005
"""Share of the calibration texts beyond each end of the range of lengths that is called calibrated."""
MARKS = 16
"""Most tokens that an alarm names."""
COHERENCE = "odd order"
"""Names of the channels that are learnt from corrupted copies of the texts."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """Fitted channels, the trend of their scores in length, their conformal scores, and those of the sum."""

    names: tuple[str, ...]
    channels: tuple[Channel, ...]
    trend: LengthTrend
    conformal: tuple[Conformal, ...]
    whole: Conformal
    """Weighted sums of surprises of the recalibration texts."""
    blocks: Blocks
    shortest: int
    longest: int
    texts: int
    documents: int
    parts: dict[str, int]

    def evidence(self, trace: Trace) -> tuple[Float[np.ndarray, "b c"], list[Evidence]]:
        """Score of every channel for every text, the trend in length taken away, and what the channels say."""
        told = [channel.evidence(trace) for channel in self.channels]
        raw = np.stack([one.values for one in told], axis=1)
        return self.trend(raw, trace.lengths), told

    def surprises(self, values: Float[np.ndarray, "b c"]) -> Float[np.ndarray, "b c"]:
        """-log of the share of texts beyond every channel's score."""
        return np.stack([law.surprise(values[:, c]) for c, law in enumerate(self.conformal)], axis=1)

    def judge(self, trace: Trace, rate: float, chance: np.random.Generator) -> Judgement:
        """What is to be said about every text of a trace, at a nominal rate of false alarms."""
        lengths = trace.lengths
        values, told = self.evidence(trace)
        values = np.where(np.isfinite(values), values, 1e9)  # a model that overflows is as unusual as can be
        surprise = self.surprises(values)
        sums = weighted_sum(surprise, self.names)
        p = self.whole.p(sums, chance)
        each = np.stack([law.p(values[:, c], chance) for c, law in enumerate(self.conformal)], axis=1)
        judged = (lengths >= max(self.shortest, LEAST_TOKENS)) & (lengths <= self.longest)
        alarm = judged & (p <= rate)
        place = np.stack([one.place for one in told], axis=1)
        marks = {b: self._marks(trace, told, surprise[b], b) for b in np.flatnonzero(alarm).tolist()}
        return Judgement(self.names, lengths, judged, p, alarm, sums, values, each, surprise, place, marks)

    def _marks(self, trace: Trace, told: Sequence[Evidence], surprise: np.ndarray, b: int) -> tuple[Mark, ...]:
        """The tokens with the largest shares in the most surprised channel that knows tokens."""
        known = [c for c, one in enumerate(told) if one.tokens is not None]
        if not known:
            return ()
        lead = max(known, key=lambda c: surprise[c])
        tokens = told[lead].weights()
        assert tokens is not None
        weight = np.where(trace.mask[b].numpy(), np.maximum(tokens[b], 0.0), 0.0)
        total = weight.sum()
        if not (np.isfinite(total) and total > 0):
            return ()
        best = [int(i) for i in np.argsort(-weight)[:MARKS] if weight[i] > 0]
        numbers = trace.numbers[b].tolist()
        return tuple(Mark(int(numbers[i]), float(weight[i] / total)) for i in best)


def calibrate(
    ear: Ear,
    inputs: Inputs,
    items: Sequence[dict[str, Any] | Tensor],
    documents: Sequence[Hashable],
    pooling: str,
    *,
    seed: int,
    report: Callable[[str], None],
) -> Calibration:
    """Learn from texts that are as they should be; whole documents are split, see `split.PARTS`."""
    parts = split(documents, seed)
    if min(len(part) for part in parts.values()) < 8:
        count = len(set(documents))
        raise InvalidInput(f"{len(items)} texts of {count} documents are too few to be split into three parts")
    lengths = np.zeros(len(items), dtype=np.int64)

    def runs(part: str) -> Iterable[tuple[list[int], Trace]]:
        numbers = parts[part]
        held = [items[i] for i in numbers]
        for own, trace in traces(ear, inputs, held, lambda done: report(f"{part}: text {done} of {len(held)}")):
            lengths[numbers[own]] = trace.lengths
            yield own, trace

    learners = _learners(ear, pooling, inputs, [items[i] for i in parts["fit"]])
    for _, trace in runs("fit"):
        for learner in learners.values():
            learner.add(trace)
    if COHERENCE in learners:
        fitted: list[Any] = [items[i] for i in parts["fit"]]
        for kind in (REPLACED, DISPLACED):
            copies, touched = corrupted(fitted, ear.special, kind, seed)
            report(f"corrupted copies of {len(copies)} texts")
            for own, trace in traces(ear, inputs, copies):
                learners[COHERENCE].add_corrupted(trace, [touched[i] for i in own], kind)
    report("fitting the channels")
    channels = _finished(learners)
    scores: dict[str, np.ndarray] = {}
    for part in ("ranks", "recalibration"):
        scores[part] = np.zeros((len(parts[part]), len(channels)))
        for own, trace in runs(part):
            scores[part][own] = np.stack([c.evidence(trace).values for c in channels.values()], axis=1)
    trend = LengthTrend.fit(scores["ranks"], lengths[parts["ranks"]])
    values = {part: trend(scores[part], lengths[parts[part]]) for part in scores}
    conformal = tuple(Conformal.of(column) for column in values["ranks"].T)
    surprise = np.stack([c.surprise(v) for c, v in zip(conformal, values["recalibration"].T, strict=True)], axis=1)
    sums = weighted_sum(surprise, tuple(channels))
    whole = Conformal.of(sums)
    ends = np.sort(lengths)[[int(OUTER * len(items)), len(items) - 1 - int(OUTER * len(items))]]
    last = parts["recalibration"]
    return Calibration(
        names=tuple(channels),
        channels=tuple(channels.values()),
        trend=trend,
        conformal=conformal,
        whole=whole,
        blocks=Blocks.of(whole, sums, [documents[i] for i in last]),
        shortest=max(LEAST_TOKENS, int(ends[0])),
        longest=int(ends[1]),
        texts=len(items),
        documents=len(set(documents)),
        parts={name: len(part) for name, part in parts.items()},
    )


def _learners(ear: Ear, pooling: str, inputs: Inputs, fitted: Sequence[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "struct": StructureLearner(),
        "typ win": TokenLearner(),
        "lay emb": PooledLearner(pooling),
        "apart": ApartLearner(),
    }
    if ear.kind == "text" and inputs.vocabulary:
        found["lex"] = LexicalLearner(inputs.vocabulary)
        written = spellings(inputs.tokenizer, inputs.vocabulary)
        if written is not None:
            found["chars"] = CharactersLearner(written)
        table = embeddings(ear.model)
        found[COHERENCE] = CoherenceLearner(
            None if table is None else Pairs.fit(table, content(fitted, ear.special))
        )
    if ear.looks:
        found["attention dynamics"] = LookedLearner(tuple(glance.place for glance in ear.looks))
    return found


def _finished(learners: dict[str, Any]) -> dict[str, Channel]:
    """Channels by name."""
    channels: dict[str, Channel] = {}
    for names, learner in learners.items():
        made = learner.finish()
        channels |= dict(zip(names.split(), made if isinstance(made, tuple) else (made,), strict=True))
    return channels
