"""What this processor and its libraries make of matrix products, beside our own loops.

Compiled loops have vectors of 512 bits wherever a processor has them. On AMD's (measured on Zen 5), MKL and
OpenBLAS multiply with 256, and `direct.wide_product` takes their place: 115 to 130 GFlop/s of a Zen 5 core for
42 to 66. From how many columns on products are faster than loops that do all at once differs, too (nanoseconds
a pair, 1500 tokens, products by `wide_product`): forwards .45 fused and .81 by products for d = 5, .62 and .94
for d = 8; backwards 1.06 and 1.75 for d = 5, 1.64 and 1.83 for d = 8. The name of a processor decides, not a
measurement: a run that is taken up again makes the same steps.
"""

from __future__ import annotations

import llvmlite.binding as llvm  # type: ignore[import-untyped]


def libraries_are_wide(name: str, wide: bool) -> bool:
    """Whether products of the libraries have the vectors of our own loops, on a processor of that name in LLVM.

    wide: whether it has vectors of 512 bits.

    >>> libraries_are_wide("sapphirerapids", True), libraries_are_wide("znver5", True)
    (True, False)
    """
    return not (wide and name.startswith("znver"))


WIDE_LIBRARIES = libraries_are_wide(llvm.get_host_cpu_name(), bool(llvm.get_host_cpu_features().get("avx512f")))
"""On the processor that this runs on: then products are those of MKL or OpenBLAS, else of `wide_product`."""
