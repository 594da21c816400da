"""All pairs on the CPU: five kernels for different sizes, one for many systems and one for tokens in an order."""

import torch

from metastable.attention.direct.adjoint import ABSENT, MOST_FUSED, adjoint_cost, adjoint_kernel, adjoint_over_pairs
from metastable.attention.direct.adjoint_products import LEAST_SHARED, pack, tile_memory, transposed_rows
from metastable.attention.direct.at_once import attend_at_once
from metastable.attention.direct.batch import attend_systems, row_sums, written_out
from metastable.attention.direct.blocks import attend_blocks, blocks_additions
from metastable.attention.direct.causal import attend_causal
from metastable.attention.direct.dense import attend_dense, dense_additions
from metastable.attention.direct.exponents import DOUBLE
from metastable.attention.direct.fused import MAX_COLUMNS, attend_fused, fused_additions, fused_cost, with_item
from metastable.attention.direct.matrix_product import multiply, multiply_turned, product_address, room
from metastable.attention.direct.processor import WIDE_LIBRARIES
from metastable.attention.direct.products import (
    LARGEST_SCORE,
    MOST_AT_ONCE,
    MOST_KEYS,
    MOST_MASS_RATIO,
    attend_products,
    attended_rows,
    rows_of_block,
)
from metastable.attention.direct.sdpa import attend_sdpa
from metastable.attention.kernel import CPU, Kernel

__all__ = [
    "ABSENT",
    "BLOCKS",
    "DENSE",
    "DOUBLE",
    "FUSED",
    "LARGEST_SCORE",
    "LEAST_SHARED",
    "MAX_COLUMNS",
    "MOST_AT_ONCE",
    "MOST_FUSED",
    "PRODUCTS",
    "SDPA",
    "WIDE_LIBRARIES",
    "adjoint_cost",
    "adjoint_kernel",
    "adjoint_over_pairs",
    "attend_at_once",
    "attend_causal",
    "attend_systems",
    "attended_rows",
    "multiply",
    "multiply_turned",
    "pack",
    "product_address",
    "room",
    "row_sums",
    "rows_of_block",
    "tile_memory",
    "transposed_rows",
    "with_item",
    "written_out",
]

FUSED = Kernel(
    "fused", attend_fused, devices=CPU, most_columns=MAX_COLUMNS, additions=fused_additions, cost=fused_cost
)
# Measured for larger d: two products and an exponential up to some 2000 tokens, tiles above, unless the products
# are our own and the tiles are not; in float32, whose sums need more care, a few calls for small systems and
# torch's flash form.
PRODUCTS = Kernel(
    "products",
    attend_products,
    devices=CPU,
    dtypes=frozenset({torch.float64}),
    most_pairs=MOST_AT_ONCE if WIDE_LIBRARIES else None,
    most_keys=None if WIDE_LIBRARIES else MOST_KEYS,
    most_mass_ratio=MOST_MASS_RATIO,
)
DENSE = Kernel("dense", attend_dense, most_pairs=16_384, additions=dense_additions)
SDPA = Kernel("sdpa", attend_sdpa, devices=CPU, most_pairs=6_000_000, most_keys=4096)
BLOCKS = Kernel("blocks", attend_blocks, devices=CPU, additions=blocks_additions)
