"""`lasting`: a compiled function that others close over, recognised by them in the next process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def lasting(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The compiled function with an identity that outlives the process; name: unique among those of metastable.

    numba finds a kernel on disk by what it closes over. A compiled function among that carries an identity drawn
    anew in every process, so that the kernel would be compiled in each of them; its code counts apart from this.
    """
    function._set_uuid(f"metastable {name}")  # type: ignore[attr-defined]
    return function
