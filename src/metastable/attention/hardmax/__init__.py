"""Hardmax attention, the limit beta -> infinity at fixed n: every query attends its best key.

The room is callable: `metastable.attention.hardmax(...)` is its main function.
"""

from metastable.attention.hardmax.choose import hardmax
from metastable.callable_room import make_callable

__all__ = ["hardmax"]

make_callable(__name__, hardmax)
