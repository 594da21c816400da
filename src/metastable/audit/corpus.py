"""`Corpus`: the texts that an audit reads, where they come from, and how many of how many they are."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from metastable.arguments import OneLine, instance, integer, names, place, shown, told
from metastable.errors import InvalidInput, StorageError

CHARACTERS = 6
"""Characters of a piece per token that a text is cut after: English has 4 to 5, so that a piece fills the limit."""
BINARY = 0.02
"""Share of control characters from which a file is no text: a text has none but tabs and line ends."""
GARBLED = 1e-3
"""Share of characters that look like UTF-8 read as Latin-1 from which that is told: a text has none."""
BYTE_ORDER = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""How a file begins that says its encoding; UTF-32 before UTF-16, whose mark it begins with."""
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
_TWICE = re.compile("[\u00c3\u00c2][\u0080-\u00bf\u201a-\u2122]|\u00e2\u20ac")


@dataclass(frozen=True, eq=False, repr=False)
class Corpus(OneLine):
    """Some items of a file or a list: texts, images, lists of token ids."""

    items: list[Any] = field(repr=False)
    found: int
    """How many there were."""
    file: str | None = None
    """The file as it was given; None for a list in memory."""
    encoding: str | None = None
    pieces: int = 0
    """How many long texts were split into pieces, which are counted as texts."""
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        instance(self.items, "items of a corpus", list, "a list")
        integer(self.found, "found", least=0)
        if self.file is not None:
            place(self.file, "file")
        names(self.remarks, "remarks")

    def spread(self, count: int | None) -> Corpus:
        """At most `count` of them, evenly spread."""
        if count is None or len(self.items) <= integer(count, "count", least=1):
            return self
        n = len(self.items)
        return replace(self, items=[self.items[i * n // count] for i in range(count)])


def as_corpus(texts: Any, count: int | None = None) -> Corpus:
    """Texts as they were given, at most `count` of them, evenly spread."""
    if isinstance(texts, Corpus):
        return texts.spread(count)
    if isinstance(texts, str):
        return Corpus([texts], 1)
    try:
        items = list(texts)
    except Exception:
        raise InvalidInput(f"texts must be a list, got {shown(texts)}") from None
    return Corpus(items, len(items)).spread(count)


def read_corpus(
    path: str | os.PathLike[str],
    *,
    max_texts: int | None = None,
    max_tokens: int | None = None,
    encoding: str | None = None,
) -> Corpus:
    """Texts of a file: paragraphs, or lines when there is no empty line; at most `max_texts`, evenly spread.

    A text much longer than `max_tokens` tokens can be is split at the ends of sentences. encoding: UTF-8, or what
    the file's first bytes say, unless it is given. A binary file is refused, and one that is not in its encoding.
    """
    file = Path(place(path, "path"))
    max_texts = None if max_texts is None else integer(max_texts, "max_texts", least=1)
    longest = None if max_tokens is None else CHARACTERS * integer(max_tokens, "max_tokens", least=1)
    try:
        content = file.read_bytes()
    except OSError as error:
        raise StorageError(f"the text file {told(file)} cannot be read: {error.strerror}") from error
    text, encoding = _decoded(content, file.name, encoding)
    parts = re.split(r"\n[ \t]*\n", text.replace("\r\n", "\n").replace("\r", "\n"))
    if len([p for p in parts if p.strip()]) < 2:
        parts = text.splitlines()
    whole = [" ".join(part.split()) for part in parts if part.strip()]
    if not whole:
        raise InvalidInput(f"the text file {told(file)} holds no text")
    texts = [piece for text in whole for piece in (split(text, longest) if longest else [text])]
    pieces = sum(longest is not None and len(text) > longest for text in whole)
    corpus = Corpus(texts, len(texts), os.fspath(path), encoding, pieces, _remarks(text, file.name))
    return corpus.spread(max_texts)


def split(text: str, longest: int) -> list[str]:
    """A text in pieces of at most `longest` characters, cut behind sentences, else between words, else anywhere.

    >>> split("One two. Three four five.", 12)
    ['One two.', 'Three four', 'five.']
    """
    pieces = []
    while len(text) > longest:
        head = text[: longest + 1]
        ends = [m.end() for m in re.finditer(r"[.!?\u3002](?=\s|$)", head[:longest])]
        cut = ends[-1] if ends and ends[-1] > longest // 4 else head.rfind(" ")
        cut = cut if cut > 0 else longest
        pieces.append(text[:cut].strip())
        text = text[cut:].strip()
    return [*pieces, text] if text else pieces


def _decoded(content: bytes, name: str, encoding: str | None) -> tuple[str, str]:
    marked = next((kind for mark, kind in BYTE_ORDER.items() if content.startswith(mark)), None)
    chosen = marked or "utf-8"
    if encoding is not None:
        asked = instance(encoding, "encoding", str, "a name such as 'latin-1'")
        try:
            chosen = codecs.lookup(asked).name
            "".encode(chosen)
        except (LookupError, ValueError):
            raise InvalidInput(f"unknown encoding {shown(asked)}; known are utf-8, utf-16, latin-1") from None
    try:
        text = content.decode(chosen)
    except UnicodeError as error:
        if b"\0" in content[:4096]:
            raise InvalidInput(f"{name} is binary, not a text") from error
        byte = (
            f" (byte {content[error.start]:#04x} at {error.start})" if isinstance(error, UnicodeDecodeError) else ""
        )
        raise InvalidInput(f"{name} is not {chosen}{byte}; say what it is, such as --encoding latin-1") from error
    if len(_CONTROL.findall(text)) > BINARY * len(text):
        raise InvalidInput(f"{name} is binary, not a text: it is full of control characters")
    return text, chosen


def _remarks(text: str, name: str) -> tuple[str, ...]:
    said = []
    if lost := text.count("\ufffd"):
        said.append(f"{name} has {lost} characters that an earlier conversion lost (U+FFFD)")
    if len(_TWICE.findall(text)) > GARBLED * len(text):
        said.append(f"{name} looks as if UTF-8 had been read as Latin-1 and written again: its accents are garbled")
    return tuple(said)


def described(corpus: Sequence[Any] | Corpus | None) -> dict[str, Any] | None:
    """What the provenance of an audit says about its texts."""
    if not isinstance(corpus, Corpus):
        return None
    return {
        "file": corpus.file,
        "encoding": corpus.encoding,
        "given": corpus.found,
        "used": len(corpus.items),
        "long_texts_split": corpus.pieces,
        "remarks": list(corpus.remarks),
    }
