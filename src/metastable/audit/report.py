"""`audit` and `AuditReport`: everything measured on one encoder, as sentences, tables, a page and JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from metastable._version import __version__
from metastable.arguments import OneLine, function, integer, place
from metastable.audit.finding import Finding
from metastable.audit.findings import LIMITS, findings
from metastable.audit.heads import WeightAudit, audit_weights
from metastable.audit.loop import STEPS, LoopAudit, audit_loops
from metastable.audit.scorecard import CheckedAssumption, scorecard
from metastable.audit.starts import text_starts
from metastable.audit.text import TextAudit, audit_text, readable
from metastable.audit.weight_findings import started
from metastable.drawing.shell import save_page
from metastable.encoders import Encoder, load

SCHEMA = "metastable/audit/1"


@dataclass(frozen=True, eq=False, repr=False)
class AuditReport(OneLine):
    """The audit of one encoder: `findings` for people, the rest for machines. `save("report.html")` writes both."""

    model: dict[str, Any]
    findings: list[Finding]
    scorecard: list[CheckedAssumption]
    weights: WeightAudit = field(repr=False)
    text: TextAudit | None = field(repr=False)
    loops: list[LoopAudit] = field(repr=False)
    limits: tuple[str, ...] = field(default=LIMITS, repr=False)
    provenance: dict[str, Any] = field(default_factory=dict, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries, lists, numbers and strings; complex numbers are pairs [re, im], infinities null."""
        parts = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {"schema": SCHEMA, **_plain(parts)}

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
    loop_steps: int = STEPS,
    seed: int = 0,
    report: Callable[[str], None] | None = None,
) -> AuditReport:
    """Audit a trained encoder: weights, attention on texts, each layer iterated, every forecast with a control.

    encoder: an `Encoder`, or anything that `metastable.encoders.load` opens. texts: what the model reads (strings,
    lists of token ids, images, token vectors); None audits the weights alone, and loops start from random tokens.
    seed: of the re-matched heads and of the random tokens. report: called with a line of progress now and then.

    >>> import torch
    >>> block = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> page = audit(torch.nn.TransformerEncoder(block, 2, enable_nested_tensor=False), loop_steps=20)
    >>> page.scorecard[1].name, page.scorecard[1].holds
    ('One head', False)
    """
    loop_steps = integer(loop_steps, "loop_steps", least=1, most=10**6)
    seed = integer(seed, "seed", least=0, most=2**63 - 1)
    if report is not None:
        function(report, "report")
    opened = encoder if isinstance(encoder, Encoder) else load(encoder)
    tell = report or (lambda line: None)
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
        provenance={
            "software": {"metastable": __version__, "torch": torch.__version__},
            "parameters": {
                "loop_steps": loop_steps,
                "loop_start": started(loops),
                "seed": seed,
            },
        },
    )


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
