"""What one computes of a measure or along a path."""

from metastable.observe.along import along
from metastable.observe.attention import attention_entropy, interaction_energy
from metastable.observe.clusters import Clusters, cluster_count, clusters
from metastable.observe.energy_balance import EnergyBalance, energy_balance, head_dissipation, weight_gradient
from metastable.observe.order import (
    distance_to_subspace,
    effective_rank,
    order_parameter,
    overlap_histogram,
    squared_distance_to_subspace,
)

__all__ = [
    "Clusters",
    "EnergyBalance",
    "along",
    "attention_entropy",
    "cluster_count",
    "clusters",
    "distance_to_subspace",
    "effective_rank",
    "energy_balance",
    "head_dissipation",
    "interaction_energy",
    "order_parameter",
    "overlap_histogram",
    "squared_distance_to_subspace",
    "weight_gradient",
]
