"""The texts of one run: calibration, in-distribution texts never used in it, every shift; all matched in length."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detection import attacks, corpora
from detection.shifts import SHIFTS, Cutter, Shift, sources

LENGTHS = (32, 250)
"""Tokens of a text: drawn log-uniformly between these."""
ATTACKS = (
    Shift("words flipped by gradient", "substitution", None, held_out=True),  # type: ignore[arg-type]
    Shift("optimised suffix", "suffix", None, held_out=True),  # type: ignore[arg-type]
)
"""Shifts that are made against the encoder at hand."""


@dataclass(frozen=True)
class Cases:
    """calibration and inside: texts of the domain, of different documents. shifted: (shift, its texts) pairs."""

    calibration: list[str]
    inside: list[str]
    shifted: list[tuple[Shift, list[str]]]


def build(
    folder: Path,
    domain: str,
    encoder: Any,
    *,
    calibration: int,
    inside: int,
    each: int,
    seed: int,
    kinds: str = "all",
) -> Cases:
    """The texts of a run. kinds: "development" leaves out what is held out, "held-out" the rest, "none" all."""
    documents = {"bbc": corpora.bbc, "imdb": corpora.imdb}[domain](folder)
    if len(documents) < calibration + inside + each:
        raise SystemExit(f"{domain}: {len(documents)} documents found below {folder}; see detection/corpora.py")
    random.Random(seed).shuffle(documents)
    rng = random.Random(seed + 1)
    low, high = map(math.log, LENGTHS)
    lengths = [round(math.exp(rng.uniform(low, high))) for _ in documents]
    cutter = Cutter(encoder.tokenizer)
    first, second = calibration, calibration + inside
    known = [cutter.cut(d, n) for d, n in zip(documents[:first], lengths, strict=False)]
    negatives = [cutter.cut(d, n) for d, n in zip(documents[first:second], lengths[first:], strict=False)]
    if kinds == "none":
        return Cases(known, negatives, [])
    rest, sizes = documents[second : second + each], lengths[second : second + each]
    source = sources(folder, encoder.tokenizer, domain, known)
    shifted = []
    for shift in SHIFTS:
        if not _wanted(shift, kinds) or (shift.name == "news" and domain == "bbc"):
            continue
        made = [
            shift.make(source, d, n, random.Random(f"{seed} {shift.name} {i}"))
            for i, (d, n) in enumerate(zip(rest, sizes, strict=True))
        ]
        shifted.append((shift, made))
    if kinds != "development":
        plain = [cutter.cut(d, n) for d, n in zip(rest, sizes, strict=True)]
        aims = [rng.choice(source.documents["fortunes"])[:900] for _ in plain]
        shifted.append((ATTACKS[0], attacks.flipped_words(encoder, plain, aims, seed)))
        shifted.append((ATTACKS[1], attacks.optimised_suffixes(encoder, plain, aims, seed)))
    return Cases(known, negatives, shifted)


def _wanted(shift: Shift, kinds: str) -> bool:
    return kinds == "all" or shift.held_out == (kinds == "held-out")
