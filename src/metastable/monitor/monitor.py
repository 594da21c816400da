"""`Monitor`: calibrated on texts of an encoder, it says which other texts are unusual, why, and where."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from metastable._version import __version__
from metastable.arguments import function, instance, integer, number, place
from metastable.encoders import Encoder, load
from metastable.errors import InvalidInput, StorageError
from metastable.monitor import stored
from metastable.monitor.attachment import Attachment
from metastable.monitor.batches import passes, pooled, special_ids
from metastable.monitor.calibration import LEAST_TEXTS, Calibration, calibrate
from metastable.monitor.drift import Drift, judge_batch, normal_scores
from metastable.monitor.identity import Identity, encoder_inside
from metastable.monitor.score import EMPTY, Score
from metastable.monitor.sites import ear_of
from metastable.monitor.stream import Stream
from metastable.monitor.texts import labels, readable, scores_in

RATE = 0.01
"""Nominal rate of false alarms where none is given: one in a hundred texts that are as they should be."""
KEPT = 1024
"""Scores that an attachment keeps; older ones are forgotten, so that it can stay for ever."""


@dataclass(frozen=True, eq=False)
class Monitor:
    """A calibrated monitor of one encoder. `score(texts)` judges texts, `attach(model)` listens to a running model.

    >>> _ = torch.manual_seed(0)
    >>> block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
    >>> encoder = load(nn.TransformerEncoder(block, 3, enable_nested_tensor=False))
    >>> monitor = Monitor.calibrate(encoder, [torch.randn(12, 16) for _ in range(200)])
    >>> [score.alarm for score in monitor.score([torch.randn(12, 16), torch.randn(1, 16).expand(12, 16)])]
    [False, True]
    """

    calibration: Calibration = field(repr=False)
    identity: Identity
    about: dict[str, Any]
    """Name and family of the model, its adapter, what it reads, the sampling of tokens, versions."""
    encoder: Encoder | None = field(default=None, repr=False)
    model: nn.Module | None = field(default=None, repr=False)
    """The module that `score` runs: the encoder's own, or the model of the user that was calibrated."""
    _turn: Any = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        instance(self.calibration, "calibration", Calibration, "a Calibration: see Monitor.calibrate")
        instance(self.identity, "identity", Identity, "an Identity: see Monitor.calibrate")
        instance(self.about, "about", dict, "a dictionary: see Monitor.calibrate")
        if self.encoder is not None:
            instance(self.encoder, "encoder", Encoder, "an Encoder")
        if self.model is not None:
            instance(self.model, "model", nn.Module, "a torch module")

    @classmethod
    def calibrate(
        cls,
        encoder: Any,
        texts: Any,
        *,
        documents: Sequence[Hashable] | None = None,
        tokens: int | None = None,
        model: Any = None,
        seed: int = 0,
        report: Callable[[str], None] | None = None,
    ) -> Monitor:
        """Learn what texts of an encoder look like; rates of false alarms are promised for texts like these.

        encoder: an `Encoder`, or anything that `metastable.encoders.load` opens. texts: what the model reads, at
        least 80, better a thousand. documents: the document of every text; whole documents are split, so that
        nothing is judged by its own neighbours (default: every text is one). tokens: look at most at so many tokens
        of a text, evenly spread (default: all). model: the model that runs in production where that is not the
        encoder's own (half precision, say); the calibration is then made with it.
        """
        seed = integer(seed, "seed", least=0, most=2**63 - 1)
        if tokens is not None:
            tokens = integer(tokens, "tokens", least=8, most=2**20)
        tell = (lambda line: None) if report is None else function(report, "report")
        try:
            tell("opening the model")
        except Exception as error:
            raise InvalidInput(f"report must take a line of text, got {type(error).__name__} from it") from error
        opened = encoder if isinstance(encoder, Encoder) else load(encoder)
        items, named, _ = readable(opened.inputs, texts, documents)
        if len(items) < LEAST_TEXTS:
            raise InvalidInput(f"a calibration needs at least {LEAST_TEXTS} texts with tokens, got {len(items)}")
        runner = opened.model if model is None else encoder_inside(model)[0]
        about = {
            "name": opened.name,
            "family": opened.family,
            "adapter": opened.adapter,
            "kind": opened.inputs.kind,
            "layers": len(opened.layers),
            "heads": len(opened.layers[0].heads),
            "d": opened.d,
            "pooling": opened.pooling,
            "batch_first": opened.inputs.batch_first,
            "special": list(special_ids(opened.tokenizer)),
            "max_tokens": opened.inputs.max_tokens,
            "tokens": tokens,
            "seed": seed,
            "versions": {"metastable": __version__, "torch": torch.__version__, "numpy": np.__version__},
        }
        ear = ear_of(runner, about, opened.sites if model is None else None)
        made = calibrate(ear, opened.inputs, items, named, opened.pooling, seed=seed, report=tell)
        return cls(made, Identity.of(runner, opened.tokenizer), about, opened, runner)

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the channels."""
        return self.calibration.names

    def nominal(self, rate: float | None = None) -> float:
        """A rate of false alarms that the calibration can promise; None: 1%, or the least that it can."""
        least = self.calibration.whole.least
        if rate is None:
            return max(RATE, least)
        read = number(rate, "rate", least=1e-12, below=1.0)
        if read < least:
            raise InvalidInput(
                f"a rate of {read:g} needs {math.ceil(1 / read) - 1} texts for recalibration, this calibration has "
                f"{len(self.calibration.whole.scores)}: the least rate is {least:.3g}"
            )
        return read

    def score(self, texts: Any, *, rate: float | None = None, seed: int = 0) -> list[Score]:
        """Judge every text. rate: nominal rate of false alarms (see `nominal`); seed: breaks ties of p-values."""
        level = self.nominal(rate)
        seed = integer(seed, "seed", least=0, most=2**63 - 1)
        count, found = self._each(
            texts, lambda made, trace: made.judge(trace, level, np.random.default_rng(seed)).scores()
        )
        return [found.get(i, Score.unjudged(EMPTY, 0)) for i in range(count)]

    def embed(self, texts: Any, *, rate: float | None = None) -> tuple[Float[np.ndarray, "n d"], list[Score]]:
        """Unit embeddings of the texts and their scores, from one pass; texts without tokens have a row of NaN."""
        level = self.nominal(rate)
        ties = np.random.default_rng(0)
        count, found = self._passes(
            texts, lambda made, trace, rows: zip(rows, made.judge(trace, level, ties).scores(), strict=True)
        )
        nothing = (np.full(int(self.about["d"]), math.nan), Score.unjudged(EMPTY, 0))
        rows = [found.get(i, nothing) for i in range(count)]
        embeddings = np.stack([np.asarray(row) for row, _ in rows]) if rows else np.zeros((0, int(self.about["d"])))
        return embeddings, [score for _, score in rows]

    def measure(self, texts: Any) -> Float[np.ndarray, "n c"]:
        """Score of every channel for every text, the trend in length taken away; NaN for texts without tokens."""
        count, rows = self._each(texts, lambda made, trace: list(made.evidence(trace)[0]))
        nothing = np.full(len(self.channels), math.nan)
        return np.stack([rows.get(i, nothing) for i in range(count)]) if count else np.zeros((0, len(nothing)))

    def drift(self, batch: Any, *, documents: Sequence[Hashable] | None = None, rate: float = RATE) -> Drift:
        """Whether a batch as a whole is unusual. batch: texts, or their scores.

        documents: the document of every text. Without it the batch is taken for one document, which is the cautious
        choice: a batch of one odd document is not drift.
        """
        rate = number(rate, "rate", above=0.0, below=1.0)
        scores = scores_in(batch)
        if scores is None:
            scores = tuple(self.score(batch))
        named = [0] * len(scores) if documents is None else labels(documents, len(scores))
        kept = [(score, label) for score, label in zip(scores, named, strict=True) if score.in_range]
        if not kept:
            return Drift(len(scores), 0, 0.0, 0.0, 1.0, False, 0, "")
        z = normal_scores(self.calibration.whole, np.array([score.surprise for score, _ in kept]))
        mean, deviation, p = judge_batch(self.calibration.blocks, z, [label for _, label in kept])
        means = {name: float(np.mean([s.channels[name].surprise for s, _ in kept])) for name in self.channels}
        alarms = sum(score.alarm for score, _ in kept)
        lead = max(means, key=lambda name: means[name])
        return Drift(len(scores), len(kept), mean, deviation, p, p <= rate, alarms, lead)

    def stream(self, *, rate: float = RATE, seed: int = 0) -> Stream:
        """A test for change of a stream of scores, to be looked at at any time: `stream.add(score.surprise)`."""
        return Stream(self.calibration.whole, rate, seed)

    def attach(
        self,
        model: Any,
        *,
        rate: float | None = None,
        sample_rate: float = 1.0,
        keep: int = KEPT,
        on_score: Callable[[Score], None] | None = None,
        seed: int = 0,
    ) -> Attachment:
        """Listen to the user's own model, which must be the one that was calibrated, until `detach()`.

        model: a Hugging Face model, a SentenceTransformer or a torch `nn.TransformerEncoder`. What it computes
        stays as it is, bit by bit, as does the implementation of its attention. rate: nominal rate of false alarms.
        sample_rate: share of the runs that are scored. keep: how many scores are kept. on_score: called with each.
        """
        options = {
            "rate": self.nominal(rate),
            "sample_rate": number(sample_rate, "sample_rate", above=0.0, most=1.0),
        }
        keep = integer(keep, "keep", least=1, most=2**24)
        seed = integer(seed, "seed", least=0, most=2**63 - 1)
        if on_score is not None:
            function(on_score, "on_score")
        inner, tokenizer = encoder_inside(model)
        self.identity.refuse(Identity.of(inner, tokenizer))
        ear = ear_of(inner, self.about)
        stream = Stream(self.calibration.whole, options["rate"], seed)
        return Attachment(ear, self.calibration, keep=keep, on_score=on_score, stream=stream, seed=seed, **options)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the calibration to a file, whole or not at all; no pickle, and none of the texts."""
        content = {"calibration": self.calibration, "identity": self.identity, "about": self.about}
        return stored.write(place(path, "path"), content)

    @classmethod
    def load(cls, path: str | os.PathLike[str], encoder: Any = None) -> Monitor:
        """Read a calibration. encoder: the one that it belongs to (another one is refused), needed for `score`."""
        read = stored.read(place(path, "path"))
        try:
            calibration = instance(read["calibration"], "calibration", Calibration, "a Calibration")
            identity, about = instance(read["identity"], "identity", Identity, "an Identity"), dict(read["about"])
        except (KeyError, TypeError, InvalidInput) as error:
            raise StorageError("the file of the calibration lacks a part of it") from error
        if encoder is None:
            return cls(calibration, identity, about)
        opened = encoder if isinstance(encoder, Encoder) else load(encoder)
        identity.refuse(Identity.of(opened.model, opened.tokenizer))
        return cls(calibration, identity, about, opened, opened.model)

    def _each(self, texts: Any, act: Callable[[Calibration, Any], Iterable[Any]]) -> tuple[int, dict[int, Any]]:
        """What `act` makes of the trace of every text that has tokens, by the number of the text."""
        return self._passes(texts, lambda made, trace, rows: act(made, trace))

    def _passes(
        self, texts: Any, act: Callable[[Calibration, Any, Any], Iterable[Any]]
    ) -> tuple[int, dict[int, Any]]:
        if self.encoder is None or self.model is None:
            raise InvalidInput(
                "this monitor has no encoder to run: load it with Monitor.load(path, encoder), or attach it"
            )
        items, numbers, count = readable(self.encoder.inputs, texts, None)
        found: dict[int, Any] = {}
        if items:
            own = self.encoder.sites if self.model is self.encoder.model else None
            ear = ear_of(self.model, self.about, own)
            with self._turn:  # the model is listened to by one at a time
                for held, trace, item, output in passes(ear, self.encoder.inputs, items):
                    rows = pooled(item, output, self.about["pooling"], ear.batch_first).numpy()
                    found |= zip((numbers[b] for b in held), act(self.calibration, trace, rows), strict=True)
        return count, found

    def __repr__(self) -> str:
        made = self.calibration
        return (
            f"Monitor({self.about['name']!r}, {made.texts} texts of {made.documents} documents, "
            f"{made.shortest} to {made.longest} tokens, channels {', '.join(self.channels)})"
        )
