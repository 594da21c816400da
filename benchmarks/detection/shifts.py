"""Shifts: what is done to a text, or put in its place, at the same number of tokens.

A shift makes of a document, a number of tokens n and a random generator one text of n tokens. `held_out` shifts
were not looked at when channels were chosen; `benign` ones are changes that nobody should be alarmed about.
"""

from __future__ import annotations

import base64
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detection import corpora, injections

SHARE = 0.2
"""Part of the tokens that a tail, an injection or a splice takes."""
MOST_CHARACTERS = 2400
"""What of a document is looked at: more than the longest text needs."""


@dataclass(frozen=True)
class Cutter:
    """Texts by number of tokens."""

    tokenizer: Any

    def count(self, text: str) -> int:
        """Tokens of a text, special ones not counted."""
        return len(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def cut(self, text: str, n: int) -> str:
        """The first n tokens of a text, as text."""
        read = self.tokenizer(
            text[: 40 * n + 400], add_special_tokens=False, return_offsets_mapping=True, verbose=False
        )
        offsets = read["offset_mapping"]
        return text if len(offsets) <= n else text[: offsets[n - 1][1]]


Make = Callable[["Source", str, int, random.Random], str]


@dataclass(frozen=True)
class Shift:
    """A named change. kind: the family it belongs to."""

    name: str
    kind: str
    make: Make
    held_out: bool = False
    benign: bool = False


@dataclass(frozen=True)
class Source:
    """What shifts draw on: the cutter, documents of other domains, words of the calibration texts."""

    cutter: Cutter
    documents: dict[str, list[str]]
    words: list[str]


def sources(folder: Path, tokenizer: Any, inside: str, calibration: list[str]) -> Source:
    """Documents of everything but the domain `inside` ("bbc" or "imdb")."""
    documents = {
        "fortunes": corpora.fortunes(folder),
        "manual": corpora.manual(folder),
        "handbook": corpora.handbook(folder, "en-US"),
        "german": corpora.manual(folder, "de"),
        "french": corpora.manual(folder, "fr"),
        "spanish": corpora.handbook(folder, "es-ES"),
        "russian": corpora.handbook(folder, "ru-RU"),
        "python": corpora.python_code(),
        "c": corpora.c_code(),
        "html": corpora.handbook(folder, "en-US", markup=True),
        "roff": corpora.manual_source(folder),
        "system log": corpora.logs(400, "system", 0),
        "access log": corpora.logs(400, "access", 0),
    }
    if inside == "imdb":
        documents["other prose"] = corpora.bbc(folder)
    counted: dict[str, int] = {}
    for text in calibration:
        for word in set(re.findall(r"[a-z]{4,}", text)):
            counted[word] = counted.get(word, 0) + 1
    return Source(Cutter(tokenizer), documents, sorted(w for w, c in counted.items() if c >= 3))


def _other(name: str) -> Make:
    def make(source: Source, text: str, n: int, rng: random.Random) -> str:
        document = rng.choice(source.documents[name])
        lines = document.splitlines(keepends=True)
        begin = rng.randrange(max(1, len(lines) // 3))
        rest = "".join(lines[begin:])
        return source.cutter.cut(rest if source.cutter.count(rest[: 12 * n]) >= n else document, n)

    return make


def _whole(change: Callable[[str, random.Random], str]) -> Make:
    def make(source: Source, text: str, n: int, rng: random.Random) -> str:
        return source.cutter.cut(change(text[:MOST_CHARACTERS], rng), n)

    return make


def _within(change: Callable[[str, random.Random], str]) -> Make:
    """A change that keeps the number of tokens and must not draw on the rest of the document."""

    def make(source: Source, text: str, n: int, rng: random.Random) -> str:
        return source.cutter.cut(change(source.cutter.cut(text, n), rng), n)

    return make


def _tail(payload: Callable[[Source, random.Random], str]) -> Make:
    def make(source: Source, text: str, n: int, rng: random.Random) -> str:
        k = max(8, round(SHARE * n))
        return source.cutter.cut(text, n - k) + " " + source.cutter.cut(payload(source, rng), k)

    return make


def _inside(payload: Callable[[Source, random.Random], str]) -> Make:
    """Sentences put at the end of a sentence of the text; at least one, more up to the share."""

    def make(source: Source, text: str, n: int, rng: random.Random) -> str:
        k = max(8, round(SHARE * n))
        put = payload(source, rng)
        while source.cutter.count(put) < k:
            put += " " + payload(source, rng)
        put = source.cutter.cut(put, max(k, min(n // 2, 24)))
        kept = source.cutter.cut(text, n - source.cutter.count(put))
        ends = [m.end() for m in re.finditer(r"[.!?]\s", kept)] or [len(kept)]
        at = rng.choice(ends)
        return kept[:at].rstrip() + " " + put + " " + kept[at:]

    return make


def _words_shuffled(text: str, rng: random.Random) -> str:
    words = text.split()
    rng.shuffle(words)
    return " ".join(words)


def _tokens_shuffled(source: Source, text: str, n: int, rng: random.Random) -> str:
    tokenizer = source.cutter.tokenizer
    tokens = tokenizer.tokenize(text[:MOST_CHARACTERS], verbose=False)[:n]
    rng.shuffle(tokens)
    return source.cutter.cut(tokenizer.convert_tokens_to_string(tokens), n)


def _sentences(text: str) -> list[str]:
    return [s for s in re.split(r"(?<=[.!?])\s+", text) if s]


def _sentences_shuffled(text: str, rng: random.Random) -> str:
    parts = _sentences(text)
    rng.shuffle(parts)
    return " ".join(parts)


def _each_word(share: float, change: Callable[[str, random.Random], str]) -> Callable[[str, random.Random], str]:
    def run(text: str, rng: random.Random) -> str:
        def one(match: re.Match[str]) -> str:
            return change(match[0], rng) if rng.random() < share else match[0]

        return re.sub(r"[A-Za-z]{3,}", one, text)

    return run


def _typo(word: str, rng: random.Random) -> str:
    i = rng.randrange(len(word) - 1)
    kind = rng.randrange(3)
    if kind == 0:
        return word[:i] + word[i + 1] + word[i] + word[i + 2 :]
    if kind == 1:
        return word[:i] + word[i + 1 :]
    return word[:i] + rng.choice("abcdefghijklmnopqrstuvwxyz") + word[i:]


LEET = str.maketrans("aeiost", "431057")
TWINS = str.maketrans("aceopxyi", "асеорхуі")
"""Latin letters and the Cyrillic ones that look the same."""
WIDE = str.maketrans({chr(c): chr(c + 0xFEE0) for c in range(0x21, 0x7F)})


def _substituted(source: Source, text: str, n: int, rng: random.Random) -> str:
    def another(word: str, rng: random.Random) -> str:
        return rng.choice(source.words)

    change = _each_word(0.1, another)
    return source.cutter.cut(change(source.cutter.cut(text, n), rng), n)


def _phrase(words: int) -> Callable[[str, random.Random], str]:
    def run(text: str, rng: random.Random) -> str:
        found = text.split()
        begin = rng.randrange(max(1, len(found) - words))
        return (" ".join(found[begin : begin + words]) + " ") * 300

    return run


def _broken_off(text: str, rng: random.Random) -> str:
    """Every sentence loses its second half."""
    return " ".join(" ".join(s.split()[: max(2, len(s.split()) // 2)]) for s in _sentences(text))


def _dropped(text: str, rng: random.Random) -> str:
    return " ".join(word for word in text.split() if rng.random() > 0.3)


def _base64(source: Source, rng: random.Random) -> str:
    return base64.b64encode(rng.randbytes(600)).decode()


def _hex(source: Source, rng: random.Random) -> str:
    return " ".join(rng.randbytes(16).hex() for _ in range(30))


def _random_tokens(source: Source, rng: random.Random) -> str:
    tokenizer = source.cutter.tokenizer
    vocabulary = sorted(w for w in tokenizer.get_vocab() if w.isascii() and not w.startswith("["))
    return " ".join(rng.choice(vocabulary).removeprefix("##") for _ in range(300))


def _injected(sentences: tuple[str, ...]) -> Make:
    return _inside(lambda source, rng: rng.choice(sentences))


def _spliced(name: str) -> Make:
    def payload(source: Source, rng: random.Random) -> str:
        parts = _sentences(rng.choice(source.documents[name]))
        begin = rng.randrange(max(1, len(parts) - 12))
        return " ".join(parts[begin : begin + 12])

    return _inside(payload)


def _spelling(text: str, rng: random.Random) -> str:
    """American spelling."""
    text = re.sub(r"(?<=[a-z]{3})is(?=(e|ed|es|ing|ation)\b)", "iz", text).replace("programme", "program")
    return re.sub(r"\b(col|fav|lab|hon|behavi|neighb)our", r"\1or", text).replace("centre", "center")


def _sentence_left_out(text: str, rng: random.Random) -> str:
    parts = _sentences(text)
    if len(parts) > 2:
        del parts[rng.randrange(1, len(parts))]
    return " ".join(parts)


def _without_commas(text: str, rng: random.Random) -> str:
    """Every second comma is left out."""
    return re.sub(r",", lambda m: "" if rng.random() < 0.5 else ",", text)


def _spaced(text: str, rng: random.Random) -> str:
    return re.sub(r" ", lambda m: rng.choice([" ", " ", "  ", "\n"]), text)


def _cased(text: str, rng: random.Random) -> str:
    return rng.choice([text.upper(), text.lower(), text.title()])


def _other_digits(text: str, rng: random.Random) -> str:
    """Numbers keep their length and change their digits."""
    return re.sub(r"\d", lambda m: rng.choice("123456789"), text)


SHIFTS: tuple[Shift, ...] = (
    Shift("fortunes", "domain", _other("fortunes")),
    Shift("manual pages", "domain", _other("manual")),
    Shift("handbook", "domain", _other("handbook"), held_out=True),
    Shift("news", "domain", _other("other prose"), held_out=True),
    Shift("German", "language", _other("german")),
    Shift("French", "language", _other("french")),
    Shift("Spanish", "language", _other("spanish"), held_out=True),
    Shift("Russian", "language", _other("russian"), held_out=True),
    Shift("Python", "code", _other("python")),
    Shift("C++", "code", _other("c"), held_out=True),
    Shift("HTML", "markup", _other("html")),
    Shift("roff", "markup", _other("roff"), held_out=True),
    Shift("system log", "logs", _other("system log")),
    Shift("access log", "logs", _other("access log"), held_out=True),
    Shift("words shuffled", "shuffle", _within(_words_shuffled)),
    Shift("sentences shuffled", "shuffle", _whole(_sentences_shuffled)),
    Shift("tokens shuffled", "shuffle", _tokens_shuffled, held_out=True),
    Shift("typos in 15% of words", "noise", _within(_each_word(0.15, _typo))),
    Shift("digits for letters in 15% of words", "noise",
          _within(_each_word(0.15, lambda w, rng: w.translate(LEET))), held_out=True),
    Shift("homoglyphs in 10% of words", "unicode", _within(_each_word(0.1, lambda w, rng: w.translate(TWINS)))),
    Shift("fullwidth letters in 10% of words", "unicode",
          _within(_each_word(0.1, lambda w, rng: w.translate(WIDE))), held_out=True),
    Shift("repeated phrase", "repetition", _whole(_phrase(6))),
    Shift("repeated word", "repetition", _whole(_phrase(1)), held_out=True),
    Shift("sentences broken off", "truncation", _whole(_broken_off)),
    Shift("30% of words left out", "truncation", _whole(_dropped), held_out=True),
    Shift("base64 tail", "tail", _tail(_base64)),
    Shift("hexadecimal tail", "tail", _tail(_hex), held_out=True),
    Shift("random suffix", "suffix", _tail(_random_tokens)),
    Shift("10% of words substituted", "substitution", _substituted),
    Shift("injected orders", "injection", _injected(injections.COMMANDS)),
    Shift("injected appeals", "injection", _injected(injections.APPEALS), held_out=True),
    Shift("spliced manual page", "splice", _spliced("manual")),
    Shift("spliced fortune", "splice", _spliced("fortunes"), held_out=True),
    Shift("case", "benign", _within(_cased), benign=True),
    Shift("white space", "benign", _within(_spaced), benign=True),
    Shift("every second comma", "benign", _whole(_without_commas), benign=True),
    Shift("other digits", "benign", _within(_other_digits), held_out=True, benign=True),
    Shift("a sentence left out", "benign", _whole(_sentence_left_out), held_out=True, benign=True),
    Shift("American spelling", "benign", _whole(_spelling), held_out=True, benign=True),
)  # fmt: skip
"""Shifts that need no model; `detection.attacks` adds those that are optimised against the encoder."""
