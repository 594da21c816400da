"""Which cells of keys matter to a patch of queries: their shares are upper bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attention.attention_reference import masses
from attention.circle.circle_tokens import circle
from metastable.attention.circle.keys import COARSEST, gather_keys
from metastable.attention.circle.patch import Patches, fresh, patch_level, scan, scanned_level


@pytest.mark.parametrize("arrangement", ["uniform", "clustered", "gap"])
@pytest.mark.parametrize("high", [2.0, 50.0, 400.0])
def test_shares_bound_what_cells_contribute(arrangement, high):
    """For every z of the patch, a cell has at most its share of F, and what is left out is below the tolerance."""
    x, m = circle(3000, arrangement, 0).numpy(), masses(3000, 1).numpy()
    level, rtol, spread = 7, 1e-6, 0.05
    keys, _ = gather_keys(x, m, 9, 16)
    at = 0.9
    patches = Patches(
        np.array([[math.cos(at), math.sin(at)]]), np.array([spread]), np.array([0.5 * high]), np.array([high]),
        np.array([10]), level,
    )  # fmt: skip
    best, cells, log_share = scan(keys, patches, 0, rtol)
    first = 2**level - 2**COARSEST
    assert best in cells
    centre, half = (part[first : first + 2**level] for part in keys.cells[:2])
    owner = np.argmax(x @ centre.T - np.cos(half), axis=1)  # not needed exactly: cells are narrow
    for angle in (at - spread, at, at + spread):
        for size in (0.5 * high, 0.8 * high, high):
            weight = m * np.exp(size * (x @ [math.cos(angle), math.sin(angle)] - 1.0))
            part = np.bincount(owner, weight, minlength=2**level) / weight.sum()
            left_out = np.setdiff1d(np.arange(2**level), cells - first)
            near = np.isin(left_out, np.concatenate([cells - first - 1, cells - first + 1]) % 2**level)
            assert part[left_out[~near]].sum() <= rtol
    assert (log_share <= 0.0).all()


def test_levels_follow_the_sharpness():
    assert patch_level(0.0) == COARSEST and patch_level(1e9) == 11
    levels = [patch_level(s) for s in (1.0, 16.0, 256.0, 4096.0)]
    assert levels == [4, 6, 8, 10]  # widths like 1 / sqrt(sharpness)
    assert scanned_level(1e4, 17, 1e-10) > scanned_level(1e2, 17, 1e-10)
    assert scanned_level(1e4, 5, 1e-10) == 5


def test_fresh_arrays():
    assert fresh(3, 2).shape == (3, 2) and fresh(3).dtype == np.float64
