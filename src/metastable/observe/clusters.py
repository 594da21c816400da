"""Clusters of tokens by single linkage at a stated angle."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from metastable.arguments import number
from metastable.errors import InvalidInput
from metastable.measure import Ensemble, as_measure

PAIRS = 20_000_000
"""Neighbour pairs above which the graph is not written out but explored: 16 bytes each, so 320 MB of indices."""


@dataclass(frozen=True, eq=False)
class Clusters:
    """Connected components of the graph that links tokens closer than `angle` (radians), largest mass first."""

    label: Int[Tensor, "n"]
    mass: Float[Tensor, "c"]
    angle: float

    def __len__(self) -> int:
        return len(self.mass)

    def __repr__(self) -> str:
        return f"Clusters({len(self)} of {len(self.label)} tokens, linked below {self.angle:g} rad)"


def clusters(rho: Any, angle: float = 0.1) -> Clusters:
    """Single linkage: two tokens belong together when a chain of tokens with steps below `angle` joins them.

    Exact in every dimension: by sorting on the circle, by a kd-tree above. Tokens of mass zero count, too.

    >>> len(clusters([[1.0, 0.0], [0.999, 0.04], [-1.0, 0.0]], angle=0.1))
    2
    """
    measure = as_measure(rho)
    angle = number(angle, "angle", above=0, most=math.pi)
    if not measure.sphere:
        raise InvalidInput("clusters at an angle need tokens on the sphere, got Euclidean ones")
    points, mass = measure.numpy()
    label = _circle_labels(points, angle) if measure.d == 2 else _tree_labels(points, 2 * math.sin(angle / 2))
    weight = np.bincount(label, weights=mass)
    order = np.argsort(-weight, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return Clusters(torch.from_numpy(rank[label]), torch.from_numpy(weight[order]), angle)


@overload
def cluster_count(rho: Ensemble, angle: float = ...) -> Int[Tensor, "b"]: ...


@overload
def cluster_count(rho: Any, angle: float = ...) -> int: ...


def cluster_count(rho: Any, angle: float = 0.1) -> int | Int[Tensor, "b"]:
    """Number of single-linkage clusters at the stated angle (radians); of an `Ensemble`, that of every system."""
    if isinstance(rho, Ensemble):
        return torch.tensor([len(clusters(one, angle)) for one in rho])
    return len(clusters(rho, angle))


def _circle_labels(points: np.ndarray, angle: float) -> np.ndarray:
    theta = np.arctan2(points[:, 1], points[:, 0])
    order = np.argsort(theta, kind="stable")
    ordered = theta[order]
    label = np.concatenate([[0], np.cumsum(np.diff(ordered) > angle)])
    if ordered[0] + 2 * math.pi - ordered[-1] <= angle:
        label[label == label[-1]] = 0
    labels = np.empty(len(theta), dtype=np.int64)
    labels[order] = label
    return labels


def _tree_labels(points: np.ndarray, radius: float) -> np.ndarray:
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial import cKDTree

    tree = cKDTree(points)
    n = len(points)
    neighbours = tree.count_neighbors(tree, radius)
    if neighbours <= PAIRS:
        pairs = tree.query_pairs(radius, output_type="ndarray")
        graph = csr_matrix((np.ones(len(pairs), dtype=np.int8), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
        return connected_components(graph, directed=False)[1].astype(np.int64)
    # Dense clusters: breadth-first, the whole frontier at a time, against the tokens not yet reached.
    labels = np.full(n, -1, dtype=np.int64)
    left = np.arange(n)
    current = -1
    while len(left):
        current += 1
        frontier, left = left[:1], left[1:]
        while len(frontier):
            labels[frontier] = current
            if not len(left):
                break
            near = np.isfinite(cKDTree(points[frontier]).query(points[left], distance_upper_bound=radius)[0])
            frontier, left = left[near], left[~near]
    return labels
