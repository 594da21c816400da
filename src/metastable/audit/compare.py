"""`compare`: two encoders on the same texts, what differs per layer and head, with error bars, largest first.

On texts the difference of two models is taken text by text, and its standard error is that of these differences; it
is called clear when it is beyond what chance gives in any of all the comparisons made (Student's t, 5% for all of
them together). Differences of weights have no error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from metastable.arguments import OneLine, function, integer, place
from metastable.arguments import names as read_names
from metastable.audit.corpus import as_corpus
from metastable.audit.factors import Factors
from metastable.audit.low_rank import LowRank
from metastable.audit.provenance import provenance
from metastable.audit.report import limited
from metastable.audit.text import readable
from metastable.audit.traffic import HEADS, LAYERS, Traffic
from metastable.drawing.shell import save_page
from metastable.encoders import Encoder, load
from metastable.errors import InvalidInput

SCHEMA = "metastable/audit-comparison/1"
CHANCE = 0.05
"""Probability that any of the differences that are called clear is one of the texts, not of the models."""
TOLD = 10
"""Differences that the terminal shows."""
SAME = 1e-6
"""Relative distance of two weight matrices up to which they are the same: the rounding of float32."""


@dataclass(frozen=True, repr=False)
class Change(OneLine):
    """One quantity of one head (or layer, or of the whole model) in both models, averaged over the texts."""

    quantity: str
    layer: int | None
    head: int | None
    before: float
    after: float
    difference: float
    error: float | None
    """Standard error of the difference over texts; None for a single text."""
    size: float
    """|difference| by the spread of the quantity over the first model's heads (layers)."""
    clear: bool

    @property
    def place(self) -> str:
        """Where it is."""
        if self.layer is None:
            return "the model"
        return f"layer {self.layer}" + ("" if self.head is None else f" head {self.head}")


@dataclass(frozen=True, repr=False)
class Moved(OneLine):
    """How far the matrices of one head moved: |B - B'| / |B| of the scores, |A - A'| / |A| of the values."""

    layer: int
    head: int
    scores: float
    values: float


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(OneLine):
    """What differs between two encoders; `sentences()` for people, `save("page.html")` for both."""

    names: tuple[str, str]
    changes: list[Change] = field(repr=False)
    """Largest first, the clear ones before the others."""
    moved: list[Moved] = field(repr=False)
    """Largest first; empty for two architectures."""
    embedding_cosine: float | None
    """Mean cosine between the two embeddings of a text, of models with embeddings of one length."""
    embedding_error: float | None
    agreement: float | None
    """Correlation between the similarities that both models give to pairs of texts."""
    agreement_error: float | None
    texts: int
    provenance: dict[str, Any] = field(default_factory=dict, repr=False)

    def sentences(self) -> list[str]:
        """What differs, largest first."""
        first, second = self.names
        said = []
        if self.agreement is not None:
            said.append(
                f"{second} gives pairs of texts the same similarities as {first} to a correlation of "
                f"{_with_error(self.agreement, self.agreement_error)}."
            )
        if self.embedding_cosine is not None:
            said.append(
                "The two embeddings of a text have a cosine of "
                f"{_with_error(self.embedding_cosine, self.embedding_error)}."
            )
        far = [m for m in self.moved if max(m.scores, m.values) > SAME]
        if self.moved and not far:
            said.append("All heads have the same weights.")
        elif far:
            top = far[0]
            said.append(
                f"{len(far)} of {len(self.moved)} heads moved in their weights, most of all layer {top.layer} head "
                f"{top.head}: its scores by {top.scores:.1%} of their size, its values by {top.values:.1%}."
            )
        clear = [c for c in self.changes if c.clear]
        if self.changes:
            said.append(
                f"On {self.texts} texts {len(clear)} of {len(self.changes)} numbers differ by more than the choice "
                f"of texts explains ({CHANCE:.0%} for all comparisons together)."
            )
        for c in clear[:TOLD]:
            word = "rose" if c.difference > 0 else "fell"
            size = _with_error(abs(c.difference), c.error)
            said.append(f"In {c.place} {c.quantity} {word} by {size}, from {c.before:.3g} to {c.after:.3g}.")
        return said

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "schema": SCHEMA,
            "names": list(self.names),
            "texts": self.texts,
            "embedding_cosine": self.embedding_cosine,
            "embedding_error": self.embedding_error,
            "agreement": self.agreement,
            "agreement_error": self.agreement_error,
            "changes": [asdict(c) for c in self.changes],
            "moved": [asdict(m) for m in self.moved],
            "provenance": self.provenance,
        }

    def numbers(self) -> dict[str, float | None]:
        """The numbers that thresholds are about, by short names; None for what could not be measured."""
        return {
            "embedding_cosine": self.embedding_cosine,
            "agreement": self.agreement,
            "clear_changes": float(sum(c.clear for c in self.changes)),
            "moved_scores": max((m.scores for m in self.moved), default=None),
            "moved_values": max((m.values for m in self.moved), default=None),
        }

    def to_html(self) -> str:
        """The comparison as one offline page."""
        from metastable.audit.compare_page import comparison_page

        return comparison_page(self)

    def save(self, path: str | Path) -> Path:
        """Write the page, and its numbers as JSON beside it; a `.json` path: only those."""
        path = place(path, "path")
        page = None if Path(path).suffix == ".json" else self.to_html()
        return save_page(page, path, self.to_dict())


def compare(
    first: Any,
    second: Any,
    texts: Any = None,
    *,
    names: Sequence[str] | None = None,
    max_texts: int | None = None,
    max_tokens: int | None = None,
    report: Callable[[str], None] | None = None,
) -> Comparison:
    """What `second` does differently from `first`: two checkpoints, a fine-tune and its origin, any two encoders.

    Of one architecture (family, layers, heads, d) every layer and head is compared; of two, the models as a whole.
    Without texts only the weights are compared, which needs one architecture.
    """
    tell: Callable[[str], Any] = (lambda line: None) if report is None else function(report, "report")
    given = None if names is None else read_names(names, "names")
    if given is not None and len(given) != 2:
        raise InvalidInput(f"names must be two, one for every model, got {len(given)}")
    count = None if max_texts is None else integer(max_texts, "max_texts", least=1)
    pair = [limited(e if isinstance(e, Encoder) else load(e), max_tokens) for e in (first, second)]
    a, b = pair
    alike = _shape(a) == _shape(b)
    corpus = None if texts is None else as_corpus(texts, count)
    if corpus is None and not alike:
        raise InvalidInput(
            f"models of two architectures can only be compared on texts, got {_shape(a)} and {_shape(b)} "
            "(family, layers, heads, d)"
        )
    titles = (a.name, b.name) if given is None else (given[0], given[1])
    titles = titles if titles[0] != titles[1] else (titles[0], f"{titles[1]} (2)")
    moved = _moved(a, b) if alike else []
    source = {"models": [provenance(e, corpus, None) for e in pair]}
    if corpus is None:
        return Comparison(titles, [], moved, None, None, None, None, 0, source)
    for encoder in pair:
        encoder.inputs.prepare(readable(encoder, corpus.items)[0])
    items = readable(a, corpus.items)[0]
    left, right = (
        Traffic.of(e, items, lambda line, name=name: tell(f"{name}: {line}"))  # type: ignore[misc]
        for e, name in zip(pair, titles, strict=True)
    )
    changes = _changes(left, right, alike)
    cosine = (left.embeddings * right.embeddings).sum(dim=1) if a.d == b.d else None
    agreement, agreement_error = _agreement(left.embeddings, right.embeddings)
    return Comparison(
        titles,
        changes,
        moved,
        None if cosine is None else float(cosine.mean()),
        None if cosine is None else _error(cosine),
        agreement,
        agreement_error,
        len(items),
        source,
    )


def _shape(encoder: Encoder) -> tuple[Any, ...]:
    return encoder.family, len(encoder.layers), len(encoder.layers[0].heads), encoder.d


def _changes(left: Traffic, right: Traffic, alike: bool) -> list[Change]:
    """Every quantity of the whole model; of two models of one architecture also of every layer and head."""
    rows: list[tuple[str, int | None, int | None, Tensor, Tensor, float]] = []
    for words, one, other in ((HEADS, left.heads, right.heads), (LAYERS, left.layers, right.layers)):
        for name, meaning in words.items():
            x, y = one[name], other[name]
            scale = max(float(x.mean(dim=0).std() if x[0].numel() > 1 else x.abs().mean()), 1e-12)
            rows.append((meaning, None, None, x.flatten(1).mean(dim=1), y.flatten(1).mean(dim=1), scale))
            for l, h in _places(x) if alike else ():
                at = (slice(None), l) if h is None else (slice(None), l, h)
                rows.append((meaning, l, h, x[at], y[at], scale))
    bound = _bound(len(rows), len(rows[0][3]))
    changes = [_change(bound, *row) for row in rows]
    return sorted(changes, key=lambda c: (not c.clear, -c.size))


def _places(values: Tensor) -> list[tuple[int, int | None]]:
    """(layer, head) of numbers (texts, layers, heads), (layer, None) of numbers (texts, layers)."""
    heads: Sequence[int | None] = range(values.shape[2]) if values.ndim == 3 else [None]
    return [(l, h) for l in range(values.shape[1]) for h in heads]


def _change(
    bound: float, meaning: str, layer: int | None, head: int | None, x: Tensor, y: Tensor, scale: float
) -> Change:
    before, after, difference, error = float(x.mean()), float(y.mean()), float((y - x).mean()), _error(y - x)
    clear = error is not None and abs(difference) > max(bound * error, 1e-9 * (1 + abs(before)))
    return Change(meaning, layer, head, before, after, difference, error, abs(difference) / scale, clear)


def _bound(comparisons: int, texts: int) -> float:
    """|t| that all comparisons together exceed by chance with probability `CHANCE` (Bonferroni)."""
    from scipy.stats import t

    return math.inf if texts < 2 else float(t.ppf(1 - CHANCE / (2 * comparisons), texts - 1))


def _moved(a: Encoder, b: Encoder) -> list[Moved]:
    found = []
    for one, other in zip(a.layers, b.layers, strict=True):
        x, y = Factors.of(one.to("cpu")), Factors.of(other.to("cpu"))
        scores, values = _distance(x.scores, y.scores), _distance(x.values, y.values)
        found += [Moved(one.index, h, float(scores[h]), float(values[h])) for h in range(len(one.heads))]
    return sorted(found, key=lambda m: -max(m.scores, m.values))


def _distance(x: LowRank, y: LowRank) -> Tensor:
    """|X - Y|_F / |X|_F of two stacks of matrices in factors."""
    stacked = LowRank(torch.cat([x.left, -y.left], dim=2), torch.cat([x.right, y.right], dim=1))
    return stacked.frobenius / x.frobenius.clamp_min(1e-300)


def _agreement(left: Tensor, right: Tensor) -> tuple[float | None, float | None]:
    """Correlation of both models' cosines between texts, and its error by leaving one text out at a time."""
    n = len(left)
    if n < 4:
        return None, None
    x, y = left @ left.T, right @ right.T

    def correlation(keep: Tensor) -> float:
        rows, columns = torch.triu_indices(len(keep), len(keep), 1)
        pairs = torch.stack([m[keep][:, keep][rows, columns] for m in (x, y)])
        return float(torch.corrcoef(pairs)[0, 1])

    every = torch.arange(n)
    parts = torch.tensor([correlation(every[every != i]) for i in range(n)], dtype=torch.float64)
    spread = float(torch.sqrt((n - 1) / n * (parts - parts.mean()).square().sum()))
    return correlation(every), spread


def _error(values: Tensor) -> float | None:
    return None if len(values) < 2 else float(values.std() / math.sqrt(len(values)))


def _with_error(value: float, error: float | None) -> str:
    """To the digit that the error leaves.

    >>> _with_error(0.99987, 3e-5), _with_error(12.34, None)
    ('0.99987 ± 3e-05', '12.3')
    """
    if error is None or not error > 0:
        return f"{value:.3g}"
    return f"{value:.{min(9, max(0, -math.floor(math.log10(error))))}f} ± {error:.1g}"
