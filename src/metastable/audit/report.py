"""`audit` and `AuditReport`: everything measured on one encoder, as sentences, tables, a page and JSON."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from metastable.arguments import OneLine, flag, function, instance, integer, place
from metastable.audit.advice import Advice, advise
from metastable.audit.corpus import as_corpus
from metastable.audit.finding import Finding
from metastable.audit.findings import LIMITS, findings
from metastable.audit.heads import WeightAudit, audit_weights
from metastable.audit.loop import STEPS, LoopAudit, audit_loops
from metastable.audit.numbers import numbers
from metastable.audit.provenance import provenance
from metastable.audit.scorecard import CheckedAssumption, scorecard
from metastable.audit.starts import text_starts
from metastable.audit.text import TextAudit, audit_text, readable
from metastable.audit.weight_findings import started
from metastable.drawing.shell import save_page
from metastable.encoders import Encoder, load

SCHEMA = "metastable/audit/2"


@dataclass(frozen=True, eq=False, repr=False)
class AuditReport(OneLine):
    """The audit of one encoder: `findings` for people, the rest for machines. `save("report.html")` writes both."""

    model: dict[str, Any]
    findings: list[Finding]
    scorecard: list[CheckedAssumption]
    weights: WeightAudit = field(repr=False)
    text: TextAudit | None = field(repr=False)
    loops: list[LoopAudit] = field(repr=False)
    advice: list[Advice] = field(default_factory=list, repr=False)
    """What could be done with the model, tried on it; empty unless asked for."""
    limits: tuple[str, ...] = field(default=LIMITS, repr=False)
    provenance: dict[str, Any] = field(default_factory=dict, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries, lists, numbers and strings; complex numbers are pairs [re, im], infinities null."""
        parts = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {"schema": SCHEMA, **_plain(parts)}

    def numbers(self) -> dict[str, float | None]:
        """The numbers that thresholds and reference values are about, by short names."""
        return numbers(self)

    def to_html(self) -> str:
        """The report as one offline page."""
        from metastable.audit.page import report_page

        return report_page(self)

    def save(self, path: str | Path) -> Path:
        """Write the page, and its numbers as JSON beside it (same name, `.json`); a `.json` path: only those."""
        path = place(path, "path")
        page = None if Path(path).suffix == ".json" else self.to_html()
        return save_page(page, path, self.to_dict())


def audit(
    encoder: Any,
    texts: Any = None,
    *,
    max_texts: int | None = None,
    max_tokens: int | None = None,
    advice: bool = False,
    given: str | None = None,
    loop_steps: int = STEPS,
    seed: int = 0,
    device: str | torch.device | None = None,
    report: Callable[[str], None] | None = None,
) -> AuditReport:
    """Audit a trained encoder: weights, attention on texts, each layer iterated, every forecast with a control.

    encoder: an `Encoder`, or anything that `metastable.encoders.load` opens. texts: what the model reads (strings,
    lists of token ids, images, token vectors, a `Corpus`); None audits the weights alone, and loops start from
    random tokens. max_texts: at most so many texts, evenly spread. max_tokens: every text is cut there. advice:
    whether to try what could be done with the model (hundreds of runs on at most 8 texts). given: the place of an
    opened encoder as it was written, for the provenance. seed: of the re-matched heads and of the random tokens.
    device: where the model runs and the loops are iterated, such as "cuda" (the model moves there); None: where it
    is. report: called with a line of progress now and then.

    >>> import torch
    >>> block = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> page = audit(torch.nn.TransformerEncoder(block, 2, enable_nested_tensor=False), loop_steps=20)
    >>> page.scorecard[1].name, page.scorecard[1].holds
    ('One head', False)
    """
    loop_steps = integer(loop_steps, "loop_steps", least=1, most=10**6)
    seed = integer(seed, "seed", least=0, most=2**63 - 1)
    advice = flag(advice, "advice")
    if given is None and isinstance(encoder, (str, os.PathLike)):
        given = os.fspath(encoder)
    elif given is not None:
        instance(given, "given", str, "a path or id")
    if report is not None:
        function(report, "report")
    max_texts = None if max_texts is None else integer(max_texts, "max_texts", least=1)
    opened = limited(encoder if isinstance(encoder, Encoder) else load(encoder), max_tokens).to(device)
    tell = report or (lambda line: None)
    corpus = None if texts is None else as_corpus(texts, max_texts)
    if corpus is not None:
        texts = corpus.items
        opened.inputs.prepare(readable(opened, texts)[0])  # what cannot be read is told before the work, not after
    weights = audit_weights(opened, tell)
    text = None if texts is None else audit_text(opened, texts, tell, seed=seed)
    starts = [] if texts is None else text_starts(opened, readable(opened, texts)[0])
    item = "text" if text is None else text.item
    loops = audit_loops(opened, weights, starts, item, steps=loop_steps, seed=seed, report=tell)
    return AuditReport(
        model=_describe(opened),
        findings=findings(opened, weights, text, loops),
        scorecard=scorecard(opened, weights, text),
        weights=weights,
        text=text,
        loops=loops,
        advice=advise(opened, readable(opened, texts)[0], tell, seed=seed) if advice and texts is not None else [],
        provenance={
            **provenance(opened, corpus, given),
            "parameters": {
                "max_texts": max_texts,
                "max_tokens": opened.inputs.max_tokens,
                "loop_steps": loop_steps,
                "loop_start": started(loops),
                "seed": seed,
            },
        },
    )


def limited(encoder: Encoder, max_tokens: int | None) -> Encoder:
    """The encoder with texts cut after at most `max_tokens` tokens, or after its own limit if that is less."""
    if max_tokens is None:
        return encoder
    most = integer(max_tokens, "max_tokens", least=1)
    limit = min(most, encoder.inputs.max_tokens or most)
    return dataclasses.replace(encoder, inputs=dataclasses.replace(encoder.inputs, max_tokens=limit))


def _describe(encoder: Encoder) -> dict[str, Any]:
    return {
        "name": encoder.name,
        "family": encoder.family,
        "adapter": encoder.adapter,
        "layers": len(encoder.layers),
        "heads": len(encoder.layers[0].heads),
        "d": encoder.d,
        "d_head": encoder.layers[0].d_head,
        "order": encoder.layers[0].order,
        "norm": encoder.layers[-1].norm.kind,
        "pooling": encoder.pooling,
        "stored_dtype": encoder.stored_dtype,
        "notes": list(encoder.notes),
        "verification": {**dataclasses.asdict(encoder.verification), "holds": encoder.verification.holds},
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return _plain(value.tolist())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (f.name for f in dataclasses.fields(value) if f.name != "spaces")
        return {name: _plain(getattr(value, name)) for name in fields}
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, complex):
        return [round(value.real, 10), round(value.imag, 10)]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
