"""`lasting`, `written`: what kernels close over, recognised by them in the next process.

numba finds a kernel on disk by the bytes of what it closes over, pickled. These must not change from process to
process, nor in the course of one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def lasting(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The compiled function with an identity that outlives the process; name: unique among those of metastable.

    A compiled function carries an identity drawn anew in every process, so that a kernel that closes over it would
    be compiled in each of them; its code counts apart from this.
    """
    function._set_uuid(f"metastable {name}")  # type: ignore[attr-defined]
    return function


def written(kind: Any) -> Any:
    """The type of llvmlite after it has written down its name, which is pickled with it from then on.

    It does so when a kernel is compiled. One that looks for itself on disk before would not find what it has saved
    after that, and be compiled in every process that calls it first.
    """
    str(kind)
    return kind
