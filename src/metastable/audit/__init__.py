"""The audit: what a trained encoder's weights and its attention on text say, every statement with a control.

The room is callable: `ms.audit(encoder, texts)` is `metastable.audit.audit(encoder, texts)`, whichever was imported
first.
"""

import sys
from types import ModuleType
from typing import Any

from metastable.audit.finding import Finding
from metastable.audit.report import AuditReport, audit
from metastable.audit.scorecard import CheckedAssumption
from metastable.audit.series import AuditSeries, audit_series

__all__ = ["AuditReport", "AuditSeries", "CheckedAssumption", "Finding", "audit", "audit_series"]


class _Room(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> AuditReport:
        return audit(*arguments, **options)


sys.modules[__name__].__class__ = _Room
