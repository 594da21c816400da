"""The weight audit: what the heads and layers of an encoder say without any text."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from metastable.audit.factors import Factors
from metastable.audit.top_space import TopSpace, angle_between
from metastable.encoders import Encoder, Layer


@dataclass(frozen=True)
class HeadAudit:
    """One head. Matrices are centred; A = A_h (values), B = B_h (scores), M = A_h B_h^T."""

    layer: int
    head: int
    kappa: float
    """|B|_F / sqrt(d): rms of |B^T s| over tokens of no preferred direction."""
    kappa_max: float
    """Operator norm of B: the largest |B^T s|."""
    kappa_over_dimension: float
    """kappa / (d_eff - 1); low temperature in the theory's sense means much larger than 1."""
    field_norm: float
    """|g_h|, the pull that every key exerts whoever asks."""
    top_value: complex
    """Eigenvalue of A of largest real part."""
    top_product: complex
    """Eigenvalue of M / kappa of largest real part."""
    gap: float
    """Gap of M / kappa behind its dominant eigenvalue (or complex pair)."""
    product_is_complex: bool
    asymmetry: float
    nonnormality: float
    score_asymmetry: float
    stable_rank_scores: float
    stable_rank_values: float
    angle: float
    """Degrees between the dominant spaces of M and A; 90 means that early and late phases pull apart."""
    trace: float
    """tr M / (|A|_F |B|_F): how well values match their own scores. It does not tell copying from suppressing."""
    trace_rank: float
    """Share of the mismatched pairs (A_h, B_h'), h' != h, whose |trace| is smaller: 1 is the best match."""
    value_spectrum: list[complex] = field(repr=False)
    product_spectrum: list[complex] = field(repr=False)


@dataclass(frozen=True)
class LayerAudit:
    """One layer: its heads summed."""

    layer: int
    d: int
    d_eff: int
    kappa: float
    """Median of the heads' kappa."""
    top_sum_values: complex
    """Dominant eigenvalue of sum_h A_h: rules a narrow cluster, the terminal phase."""
    top_sum_products: complex
    """Dominant eigenvalue of M0: rules wide clouds, the early phase."""
    product_is_complex: bool
    ratio: float
    """Re lambda(M0) / Re lambda(sum A): how much faster the early phase is than the terminal one."""
    gap_values: float
    gap_products: float
    asymmetry: float
    nonnormality: float
    stable_rank: float
    """Of sum_h A_h, |.|_F^2 / |.|^2: a property of the weights, not the number of directions that updates use."""
    overlap_spaces: float
    """Share of the dominant space of M0 that lies in that of sum A (chance: k/d)."""
    notes: list[str]
    sum_values_spectrum: list[complex] = field(repr=False)
    sum_products_spectrum: list[complex] = field(repr=False)


@dataclass(frozen=True)
class WeightAudit:
    """All heads, all layers, and which dominant directions the layers share."""

    heads: list[HeadAudit] = field(repr=False)
    layers: list[LayerAudit]
    shared_directions: list[list[float]] = field(repr=False)
    """Entry (l, l'): mean squared cosine between the dominant spaces of sum A of two layers."""
    shared_by_chance: float
    spaces: list[tuple[Tensor, Tensor]] = field(repr=False)
    """Orthonormal bases of the dominant spaces of sum A and M0 of every layer."""


def audit_weights(encoder: Encoder, report: Callable[[str], None] = lambda text: None) -> WeightAudit:
    """Audit the weights of every head and layer."""
    heads: list[HeadAudit] = []
    layers: list[LayerAudit] = []
    spaces: list[tuple[Tensor, Tensor]] = []
    for layer in encoder.layers:
        report(f"weights of layer {layer.index}")
        factors = Factors.of(layer.to("cpu"))  # small dense eigenproblems: a CPU does them best
        values, products = TopSpace.of(factors.sum_values), TopSpace.of(factors.sum_products)
        own = _heads(layer, factors)
        heads += own
        layers.append(_layer(layer, factors, values, products, own))
        spaces.append((values.basis, products.basis))
    shared = [[_overlap(a, b) for b, _ in spaces] for a, _ in spaces]
    chance = max(space.shape[1] for space, _ in spaces) / layers[0].d_eff
    return WeightAudit(heads, layers, shared, chance, spaces)


def _heads(layer: Layer, factors: Factors) -> list[HeadAudit]:
    d, d_eff = layer.d, layer.norm.d_eff
    scores, values, products = factors.scores, factors.values, factors.products
    kappa = scores.frobenius / math.sqrt(d)
    traces = factors.mismatched_traces()
    result = []
    for h in range(len(layer.heads)):
        scale = 1 / max(float(kappa[h]), 1e-300)
        spectrum = products.eigenvalues[h] * scale
        k, is_complex = products.leading(h)
        rest = spectrum[k:].real
        following = max(float(rest[0]) if len(rest) else -math.inf, 0.0 if layer.d > len(spectrum) else -math.inf)
        others = torch.cat((traces[h, :h], traces[h, h + 1 :])).abs()
        result.append(
            HeadAudit(
                layer=layer.index,
                head=h,
                kappa=float(kappa[h]),
                kappa_max=float(scores.operator_norm[h]),
                kappa_over_dimension=float(kappa[h]) / max(d_eff - 1, 1),
                field_norm=float(factors.field[h].norm()),
                top_value=complex(values.eigenvalues[h, 0]),
                top_product=complex(spectrum[0]),
                gap=float(spectrum[k - 1].real) - following,
                product_is_complex=is_complex,
                asymmetry=float(products.asymmetry[h]),
                nonnormality=float(products.nonnormality[h]),
                score_asymmetry=float(scores.asymmetry[h]),
                stable_rank_scores=float(scores.stable_rank[h]),
                stable_rank_values=float(values.stable_rank[h]),
                angle=angle_between(products.top_space(h), values.top_space(h)),
                trace=float(traces[h, h]),
                trace_rank=float((others < traces[h, h].abs()).double().mean()) if len(others) else 1.0,
                value_spectrum=_listed(values.eigenvalues[h]),
                product_spectrum=_listed(spectrum),
            )
        )
    return result


def _layer(
    layer: Layer, factors: Factors, values: TopSpace, products: TopSpace, heads: Sequence[HeadAudit]
) -> LayerAudit:
    matrix = factors.sum_products
    square = matrix.square().sum()
    commutator = matrix @ matrix.T - matrix.T @ matrix
    total = factors.sum_values
    return LayerAudit(
        layer=layer.index,
        d=layer.d,
        d_eff=layer.norm.d_eff,
        kappa=statistics.median(h.kappa for h in heads),
        top_sum_values=values.top,
        top_sum_products=products.top,
        product_is_complex=products.is_complex,
        ratio=products.top.real / values.top.real if values.top.real > 0 else math.inf,
        gap_values=values.gap,
        gap_products=products.gap,
        asymmetry=float(((matrix - matrix.T).norm() / (2 * square.sqrt())).item()),
        nonnormality=float(commutator.norm() / square),
        stable_rank=float(total.square().sum() / torch.linalg.matrix_norm(total, ord=2) ** 2),
        overlap_spaces=_overlap(values.basis, products.basis),
        notes=list(layer.notes),
        sum_values_spectrum=_listed(values.eigenvalues),
        sum_products_spectrum=_listed(products.eigenvalues),
    )


def _overlap(a: Tensor, b: Tensor) -> float:
    return float((a.T @ b).square().sum()) / min(a.shape[1], b.shape[1])


def _listed(values: Tensor) -> list[complex]:
    return [complex(v) for v in values]
