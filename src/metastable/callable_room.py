"""Rooms that are also their main function: `ms.solve(...)` is `metastable.solve.solve(...)`, whichever came first.

A package cannot be a function, but a module may have a class of its own, and a class may say what calling means. So
`import metastable.solve.events` and `ms.solve(flow, ...)` both work, in whatever order things are imported.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def make_callable(room: str, function: Callable[..., Any]) -> None:
    """Let the module named `room` be called like `function`, with its signature.

    For type checkers the parent package declares the function itself:
    `if TYPE_CHECKING: from metastable.solve import solve`, `else: from metastable import solve`.
    """
    called = {
        "__call__": staticmethod(function),
        "__signature__": inspect.signature(function),
        # Modules cannot be pickled or copied, functions can: so that a pool of processes takes `ms.solve`.
        "__reduce__": lambda self: (importlib.import_module, (room,)),
    }
    sys.modules[room].__class__ = type("CallableRoom", (ModuleType,), called)
