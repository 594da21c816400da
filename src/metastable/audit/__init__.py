"""The audit: what a trained encoder's weights and its attention on text say, every statement with a control."""

from metastable.audit.findings import Finding
from metastable.audit.report import AuditReport, audit
from metastable.audit.scorecard import Assumption
from metastable.audit.series import AuditSeries, audit_series

__all__ = ["Assumption", "AuditReport", "AuditSeries", "Finding", "audit", "audit_series"]
