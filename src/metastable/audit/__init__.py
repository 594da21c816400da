"""The audit: what a trained encoder's weights and its attention on text say, every statement with a control.

The room is callable: `ms.audit(encoder, texts)` is `metastable.audit.audit(encoder, texts)`, whichever was imported
first.
"""

from metastable.audit.advice import Advice
from metastable.audit.compare import Comparison, compare
from metastable.audit.corpus import Corpus, read_corpus
from metastable.audit.finding import Finding
from metastable.audit.reference_values import reference_encoders
from metastable.audit.report import AuditReport, audit
from metastable.audit.scorecard import CheckedAssumption
from metastable.audit.series import AuditSeries, audit_series
from metastable.audit.thresholds import Threshold
from metastable.callable_room import make_callable

__all__ = [
    "Advice",
    "AuditReport",
    "AuditSeries",
    "CheckedAssumption",
    "Comparison",
    "Corpus",
    "Finding",
    "Threshold",
    "audit",
    "audit_series",
    "compare",
    "read_corpus",
    "reference_encoders",
]

make_callable(__name__, audit)
