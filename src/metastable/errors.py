"""What can go wrong, as types.

Every exception that metastable raises on purpose derives from `MetastableError` and carries one sentence that
names the value and what was expected; the command line prints that sentence and nothing else.
"""

from __future__ import annotations


class MetastableError(Exception):
    """Base of all errors raised on purpose; its message is one sentence for the user."""


class InvalidInput(MetastableError, ValueError):
    """A value, shape or name that the function cannot accept."""


class NoEnergy(MetastableError, ValueError):
    """The flow is not a gradient flow, so it has no energy."""


class NotDefined(MetastableError, ValueError):
    """A mathematical object that does not exist for this input (a limit map without a limit, say)."""


class SolveError(MetastableError, RuntimeError):
    """The integrator cannot continue (step underflow, non-finite field, too many steps)."""


class StorageError(MetastableError, OSError):
    """A file that cannot be read or written."""


class MissingExtra(MetastableError, ImportError):
    """An optional dependency is not installed; the message says which extra to install."""

    @classmethod
    def of(cls, package: str, extra: str) -> MissingExtra:
        """The sentence for a missing optional package."""
        return cls(f"{package} is not installed; run: pip install 'metastable[{extra}]'")
