"""The scorecard: each assumption of the low-temperature theory, whether this encoder meets it, and by how much."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from metastable.arguments import OneLine
from metastable.audit.heads import WeightAudit
from metastable.audit.text import TextAudit
from metastable.encoders import Encoder

ASYMMETRIC = 0.05
"""Largest relative defect from symmetry or normality that still counts as none: a rule of thumb."""
COLD = 3.0
"""kappa / (d_eff - 1) from which attention is called cold (below 1/3: warm), a rule of thumb for "much larger"."""
FIELD = 0.1
"""Largest |g_h| / kappa_h that still counts as no field: a rule of thumb."""
SAME_WEIGHTS = 0.9
"""Share of their dominant spaces that successive layers must have in common to count as one: a rule of thumb."""


@dataclass(frozen=True, repr=False)
class CheckedAssumption(OneLine):
    """One assumption of the theory on this encoder: what is asked, whether it holds, the number, what it means."""

    name: str
    asks: str
    holds: bool
    measured: float | None
    threshold: str
    says: str


def scorecard(encoder: Encoder, weights: WeightAudit, text: TextAudit | None) -> list[CheckedAssumption]:
    """All assumptions of the concentration theorem's setting that weights (and text) can decide."""
    layers, heads = weights.layers, weights.heads
    spherical = sum(layer.spherical for layer in encoder.layers)
    n_heads = len(encoder.layers[0].heads)
    rank, d = encoder.layers[0].d_head, encoder.d
    asymmetry = statistics.median(h.asymmetry for h in heads)
    nonnormality = statistics.median(h.nonnormality for h in heads)
    rotating = sum(h.product_is_complex for h in heads)
    field = statistics.median(h.field_norm / max(h.kappa, 1e-300) for h in heads)
    chain = [weights.shared_directions[i][i + 1] for i in range(len(layers) - 1)]
    kept = statistics.mean(chain) if chain else 1.0
    positional = sum(layer.positions.seen for layer in encoder.layers)
    rows = [
        CheckedAssumption(
            "Tokens live on a sphere",
            "every layer moves points of the unit sphere",
            spherical == len(layers),
            spherical / len(layers),
            "all layers",
            f"{spherical} of {len(layers)} layers take normalised tokens and renormalise what they move",
        ),
        CheckedAssumption(
            "One head",
            "a single pair of matrices (V, B)",
            n_heads == 1,
            float(n_heads),
            "1",
            f"{n_heads} heads act at once, so the zero-temperature flow is no linear flow in disguise",
        ),
        _temperature(weights, text),
        CheckedAssumption(
            "B is invertible",
            "no query direction is blind",
            rank >= d,
            rank / d,
            "rank = d",
            f"each head's B has rank at most {rank} of {d}: along the rest its attention is uniform",
        ),
        CheckedAssumption(
            "M = V B^T is symmetric",
            "concentration on an eigenspace, along orthogonal directions",
            asymmetry <= ASYMMETRIC,
            asymmetry,
            f"<= {ASYMMETRIC}",
            f"median |M - M^T| / 2|M| over heads is {asymmetry:.2f} (0 symmetric, 0.71 random, 1 antisymmetric)",
        ),
        CheckedAssumption(
            "M is normal",
            "eigenvectors are orthogonal, no transient growth",
            nonnormality <= ASYMMETRIC,
            nonnormality,
            f"<= {ASYMMETRIC}",
            f"median |MM^T - M^TM| / |M|^2 over heads is {nonnormality:.2f}",
        ),
        CheckedAssumption(
            "The dominant eigenvalue is real",
            "a fixed axis to concentrate on",
            rotating == 0,
            rotating / len(heads),
            "0 of the heads",
            f"{rotating} of {len(heads)} heads have a complex dominant pair: their limit is a rotation",
        ),
        CheckedAssumption(
            "No field",
            "scores <x, By> and nothing else",
            field <= FIELD,
            field,
            f"<= {FIELD}",
            f"median |g_h| / kappa_h is {field:.2f}: biases pull all queries to the same keys",
        ),
        CheckedAssumption(
            "Scores do not see positions",
            "tokens are exchangeable in the flow",
            positional == 0,
            positional / len(layers),
            "0 layers",
            f"{positional} of {len(layers)} layers add a rotation, window or bias by position to their scores "
            "(positions that embeddings put into the tokens are not tested)",
        ),
        CheckedAssumption(
            "Weights do not change with depth",
            "one (V, B) for all times",
            kept >= SAME_WEIGHTS,
            kept,
            f">= {SAME_WEIGHTS:g}",
            f"successive layers share {kept:.0%} of their dominant space (chance: {weights.shared_by_chance:.0%})",
        ),
        CheckedAssumption(
            "Attention only",
            "nothing but attention moves the tokens",
            False,
            None,
            "no MLP",
            "every block also has an MLP and a residual gain, which this theory does not describe",
        ),
    ]
    return rows


def _temperature(weights: WeightAudit, text: TextAudit | None) -> CheckedAssumption:
    if text is not None:
        ratio = statistics.median(layer.kappa_over_dimension for layer in text.layers)
        told = (
            f"on {text.length:.0f} tokens kappa is {ratio:.2g} times their effective dimension minus 1 "
            "(median over layers; longer texts fill more dimensions)"
        )
    else:
        ratio = statistics.median(h.kappa_over_dimension for h in weights.heads)
        told = f"kappa is {ratio:.2g} times d_eff - 1 (median over heads, tokens without preferred direction)"
    return CheckedAssumption(
        "Low temperature", "kappa = |B^T x| much larger than d - 1", ratio >= COLD, ratio, f">= {COLD:g}", told
    )
