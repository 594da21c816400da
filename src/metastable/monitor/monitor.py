"""`Monitor`: calibrated on texts of an encoder, it says which other texts are unusual, why, and where."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from metastable._version import __version__
from metastable.arguments import function, integer, number, sequence, shown
from metastable.encoders import Encoder, load
from metastable.encoders.inputs import Inputs
from metastable.errors import InvalidInput
from metastable.monitor.batches import special_ids, traces
from metastable.monitor.calibration import LEAST_TEXTS, Calibration, calibrate, moved
from metastable.monitor.drift import Drift, judge_batch, normal_scores
from metastable.monitor.identity import Identity, encoder_inside
from metastable.monitor.listening import Ear
from metastable.monitor.score import EMPTY, Score

RATE = 0.01
"""Nominal rate of false alarms where none is given: one in a hundred texts that are as they should be."""


@dataclass(frozen=True, eq=False)
class Monitor:
    """A calibrated monitor of one encoder. `score(texts)` judges texts, `attach(model)` listens to a running model.

    >>> import torch
    >>> torch.manual_seed(0).initial_seed()
    0
    >>> block = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
    >>> encoder = load(torch.nn.TransformerEncoder(block, 3, enable_nested_tensor=False))
    >>> usual = [torch.randn(12, 16) for _ in range(200)]
    >>> monitor = Monitor.calibrate(encoder, usual)
    >>> [score.alarm for score in monitor.score([torch.randn(12, 16), torch.randn(1, 16).expand(12, 16)])]
    [False, True]
    """

    calibration: Calibration = field(repr=False)
    identity: Identity
    about: dict[str, Any]
    """Name and family of the model, its adapter, what it reads, the sampling of tokens, versions."""
    encoder: Encoder | None = field(default=None, repr=False)
    model: nn.Module | None = field(default=None, repr=False)
    """The module that is run by `score`: the encoder's own, or the user's model that was calibrated."""

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
        """Learn what texts of an encoder look like; false alarms are promised for texts like these.

        encoder: an `Encoder`, or anything that `metastable.encoders.load` opens. texts: what the model reads, at least
        LEAST_TEXTS, better a thousand. documents: the document of every text; whole documents are split, so that
        nothing is judged by its own neighbours (default: every text is one). tokens: look at most at so many tokens of
        a text, evenly spread (default: all). model: the model that runs in production, if it is not the encoder's own
        (half precision, say); calibration is made with it.
        """
        seed = integer(seed, "seed", least=0, most=2**63 - 1)
        if tokens is not None:
            tokens = integer(tokens, "tokens", least=8, most=2**20)
        tell = (lambda line: None) if report is None else function(report, "report")
        opened = encoder if isinstance(encoder, Encoder) else load(encoder)
        items, labels, _ = _readable(opened.inputs, texts, documents)
        if len(items) < LEAST_TEXTS:
            raise InvalidInput(f"a calibration needs at least {LEAST_TEXTS} texts with tokens, got {len(items)}")
        runner = opened.model if model is None else encoder_inside(model)[0]
        special = special_ids(opened.tokenizer)
        ear = _ear(opened, runner, special, tokens)
        made = calibrate(
            ear,
            opened.inputs,
            items,
            labels,
            opened.pooling,
            vocabulary=opened.inputs.vocabulary,
            seed=seed,
            report=tell,
        )
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
            "special": list(special),
            "max_tokens": opened.inputs.max_tokens,
            "tokens": tokens,
            "seed": seed,
            "versions": {"metastable": __version__, "torch": torch.__version__, "numpy": np.__version__},
        }
        return cls(made, Identity.of(runner, opened.tokenizer), about, opened, runner)

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the channels."""
        return self.calibration.names

    def score(self, texts: Any, *, rate: float = RATE, seed: int = 0) -> list[Score]:
        """Judge every text; `rate` is the nominal rate of false alarms. A text alone and in a list is judged alike."""
        rate = number(rate, "rate", above=0.0, below=1.0)
        seed = integer(seed, "seed", least=0, most=2**63 - 1)
        found: list[Score] = []

        def judge(trace: Any) -> list[Score]:
            return self.calibration.judge(trace, rate, np.random.default_rng(seed))

        count, scores = self._each(texts, judge)
        found = [scores.get(i, Score.unjudged(EMPTY, 0)) for i in range(count)]
        return found

    def measure(self, texts: Any) -> Float[np.ndarray, "n c"]:
        """Score of every channel for every text, the trend in length taken away; NaN for texts without tokens."""
        count, rows = self._each(texts, lambda trace: list(self.calibration.evidence(trace)[0]))
        nothing = np.full(len(self.channels), math.nan)
        return np.stack([rows.get(i, nothing) for i in range(count)])

    def drift(self, batch: Any, *, documents: Sequence[Hashable] | None = None, rate: float = RATE) -> Drift:
        """Whether a batch as a whole is unusual. batch: texts, or their scores.

        documents: the document of every text. Without it the batch is taken for one document, which is the cautious
        choice: a batch of one odd document is not drift.
        """
        rate = number(rate, "rate", above=0.0, below=1.0)
        scores = _scores(batch)
        if scores is None:
            scores = tuple(self.score(batch, rate=rate))
        labels = _labels(documents, len(scores)) if documents is not None else [0] * len(scores)
        kept = [(score, label) for score, label in zip(scores, labels, strict=True) if score.in_range]
        if not kept:
            return Drift(len(scores), 0, 0.0, 0.0, 1.0, False, 0, "")
        z = normal_scores(self.calibration.whole, np.array([score.surprise for score, _ in kept]))
        mean, deviation, p, alarm = judge_batch(self.calibration.blocks, z, [label for _, label in kept], rate)
        means = {name: float(np.mean([s.channels[name].surprise for s, _ in kept])) for name in self.channels}
        alarms = sum(score.alarm for score, _ in kept)
        return Drift(
            len(scores), len(kept), mean, deviation, p, alarm, alarms, max(means, key=lambda name: means[name])
        )

    def _each(self, texts: Any, act: Callable[[Any], Sequence[Any]]) -> tuple[int, dict[int, Any]]:
        """What `act` makes of every text that has tokens, by the number of the text."""
        if self.encoder is None or self.model is None:
            raise InvalidInput(
                "this monitor was loaded without its encoder: Monitor.load(path, encoder) gives it one, or attach it"
            )
        items, numbers, count = _readable(self.encoder.inputs, texts, None)
        ear = _ear(self.encoder, self.model, self.about["special"], self.about["tokens"])
        device = next(self.model.parameters()).device
        own = self if device.type == "cpu" else replace(self, calibration=moved(self.calibration, device))
        found: dict[int, Any] = {}
        if items:
            for held, trace in traces(ear, self.encoder.inputs, items):
                for b, made in zip(held, act(trace), strict=True):
                    found[numbers[b]] = made
        del own
        return count, found

    def __repr__(self) -> str:
        made = self.calibration
        return (
            f"Monitor({self.about['name']!r}, {made.texts} texts of {made.documents} documents, "
            f"{made.shortest} to {made.longest} tokens, channels {', '.join(self.channels)})"
        )


def _ear(encoder: Encoder, model: nn.Module, special: Sequence[int], tokens: int | None) -> Ear:
    sites = encoder.sites
    if model is not encoder.model:
        raise InvalidInput("not yet")
    return Ear.of(
        model, sites, encoder.inputs.kind, batch_first=encoder.inputs.batch_first, special=special, tokens=tokens
    )


def _readable(
    inputs: Inputs, texts: Any, documents: Sequence[Hashable] | None
) -> tuple[list[dict[str, Any] | Tensor], list[Any], int]:
    """Model inputs of the texts that have tokens, their documents (by default their numbers), and how many were given."""
    if isinstance(texts, str):
        texts = [texts]
    try:
        given = list(texts)
    except Exception:
        raise InvalidInput(f"texts must be a list, got {shown(texts)}") from None
    labels = list(range(len(given))) if documents is None else _labels(documents, len(given))
    kept = [
        (item, label)
        for item, label in zip(given, labels, strict=True)
        if not (isinstance(item, str) and not item.strip())
    ]
    if not kept:
        return [], [], len(given)
    return inputs.prepare([item for item, _ in kept]), [label for _, label in kept], len(given)


def _labels(documents: Any, count: int) -> list[Hashable]:
    labels = list(sequence(documents, "documents", (str, int, float, tuple, np.generic), "labels"))
    if len(labels) != count:
        raise InvalidInput(f"documents must name one for each of the {count} texts, got {len(labels)}")
    return labels


def _scores(batch: Any) -> tuple[Score, ...] | None:
    if isinstance(batch, (list, tuple)) and batch and all(isinstance(one, Score) for one in batch):
        return tuple(batch)
    return None
