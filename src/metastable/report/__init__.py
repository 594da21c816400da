"""Figures for papers and one self-contained page: everything here draws numbers that other rooms computed."""

from metastable.report.snapshots import snapshots

__all__ = ["snapshots"]
