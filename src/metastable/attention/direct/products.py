"""Two matrix products with the exponentials between them, for larger d and up to some thousand tokens in float64.

A block of rows of s_ij = beta <q_i, k_j> becomes e^{s_ij} in place and meets [m v] in the second product. Scores
are at most L = beta max|q| max|k|; as long as that is far from the ends of float64, nothing is shifted and no
maximum is looked for. Larger ones are shifted by the maximum of their row.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from metastable.attention.operands import Operands
from metastable.errors import InvalidInput

LARGEST_SCORE = 250.0
"""Scores up to this are not shifted: e^250 times 2^30 keys and e^-250 times MOST_MASS_RATIO^-1 are float64 numbers
with all their digits, which end at e^709 and e^-708."""
MOST_MASS_RATIO = 1e100
"""Largest ratio of masses, which multiply the weights: with scores as above no product underflows; where rows are
shifted, what underflows beside a weight of one is e^-708, and below the rounding of that ratio."""
_ROWS = 256
"""Rows of a block: up to 4 MB of scores with 2000 keys, still in a cache when the second product reads them."""


def attend_products(operands: Operands) -> tuple[Tensor, Tensor]:
    """(mean, log Z) of `attend` on the CPU for any d and d_v in float64."""
    operands.require_cpu("products")
    if operands.queries.dtype != torch.float64:
        dtype = str(operands.queries.dtype).removeprefix("torch.")
        raise InvalidInput(f'kernel="products" computes in float64, got {dtype}; use kernel="blocks"')
    operands = operands.seen
    queries, keys, values = operands.beta * operands.queries, operands.keys.T, operands.values
    n, n_k, d_v = queries.size(0), keys.size(1), values.size(1)
    largest = operands.masses.largest
    share = operands.mass / largest
    weighted = values * share[:, None]
    shifted = operands.largest_score > LARGEST_SCORE
    mean, partition = torch.empty((n, d_v), dtype=values.dtype), torch.empty(n, dtype=values.dtype)
    top = torch.zeros((n, 1), dtype=values.dtype)
    buffer = torch.empty((min(_ROWS, n), n_k), dtype=values.dtype)
    for first in range(0, n, _ROWS):
        here = slice(first, min(first + _ROWS, n))
        scores = buffer[: here.stop - first]
        torch.mm(queries[here], keys, out=scores)
        if shifted:
            torch.amax(scores, dim=1, keepdim=True, out=top[here])
            scores -= top[here]
        scores.exp_()
        torch.mm(scores, weighted, out=mean[here])
        torch.mv(scores, share, out=partition[here])
    mean /= partition[:, None]
    log_partition = torch.log(partition) + math.log(largest)
    return mean, log_partition + top[:, 0] if shifted else log_partition
