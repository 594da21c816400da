"""What one computes of a measure or along a path."""

from metastable.observe.along import along
from metastable.observe.attention import attention_entropy, interaction_energy
from metastable.observe.clusters import Clusters, cluster_count, clusters
from metastable.observe.energy_balance import EnergyBalance, energy_balance, head_dissipation, weight_gradient
from metastable.observe.entropy_production import entropy_production
from metastable.observe.head_energies import HeadEnergies, head_energies
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
    "EnergyBalance",
    "HeadEnergies",
    "along",
    "attention_entropy",
    "cluster_count",
    "clusters",
    "distance_to_subspace",
    "effective_rank",
    "energy_balance",
    "entropy_production",
    "head_dissipation",
    "head_energies",
    "interaction_energy",
    "order_parameter",
    "overlap_histogram",
    "pair_fraction",
    "squared_distance_to_subspace",
    "weight_gradient",
]
