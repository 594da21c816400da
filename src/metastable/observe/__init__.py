"""What one computes of a measure or along a path."""

from metastable.observe.along import along
from metastable.observe.attention import attention_entropy, interaction_energy
from metastable.observe.clusters import Clusters, cluster_count, clusters
from metastable.observe.order import (
    distance_to_subspace,
    effective_rank,
    order_parameter,
    overlap_histogram,
    squared_distance_to_subspace,
)
from metastable.observe.pairs import pair_fraction

__all__ = [
    "Clusters",
    "along",
    "attention_entropy",
    "cluster_count",
    "clusters",
    "distance_to_subspace",
    "effective_rank",
    "interaction_energy",
    "order_parameter",
    "overlap_histogram",
    "pair_fraction",
    "squared_distance_to_subspace",
]
