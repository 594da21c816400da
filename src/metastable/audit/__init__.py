"""The audit: what a trained encoder's weights and its attention on text say, every statement with a control.

The room is callable: `ms.audit(encoder, texts)` is `metastable.audit.audit(encoder, texts)`, whichever was imported
first.
"""

from metastable.audit.finding import Finding
from metastable.audit.report import AuditReport, audit
from metastable.audit.scorecard import CheckedAssumption
from metastable.audit.series import AuditSeries, audit_series
from metastable.callable_room import make_callable

__all__ = ["AuditReport", "AuditSeries", "CheckedAssumption", "Finding", "audit", "audit_series"]

make_callable(__name__, audit)
