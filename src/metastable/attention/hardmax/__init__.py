"""Hardmax attention, the limit beta -> infinity at fixed n: every query attends its best key."""

from metastable.attention.hardmax.choose import hardmax
from metastable.attention.hardmax.tiles import hardmax_tiled

__all__ = ["hardmax", "hardmax_tiled"]
