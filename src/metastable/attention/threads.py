"""Row blocks on all cores; see `metastable.threads`."""

from metastable.threads import blas_can_be_held, over_rows

__all__ = ["blas_can_be_held", "over_rows"]
