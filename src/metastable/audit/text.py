"""The text audit: what attention does on real tokens, layer by layer."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import shown
from metastable.audit.closures import closure_cosines
from metastable.audit.depth import DepthPoint, depth_points, mean_cosines, similarity
from metastable.audit.emission import UpdateMoments, copying
from metastable.audit.forecasts import NAMES, OneStep, StepForecasts
from metastable.audit.on_tokens import attention_summary, kappas, participation
from metastable.audit.spread import mean, standard_error
from metastable.audit.text_lengths import LengthPoint, length_curve
from metastable.encoders import Encoder, Layer, Verification
from metastable.encoders.own_input import verify_on
from metastable.errors import InvalidInput
from metastable.measure import Measure
from metastable.transport import wasserstein

ITEMS = {"text": "text", "image": "image", "vectors": "sequence"}
UNKNOWN = 0.5
"""Share of unknown tokens from which texts are refused: more than half of what the model sees is then one token."""
TRANSPORT_TOKENS = 256
"""W2 between layers is exact on at most this many (evenly spread) tokens of a text."""


@dataclass(frozen=True)
class TextHead:
    """One head on text, averaged over texts."""

    layer: int
    head: int
    entropy: float
    """Mean attention entropy / log n: 1 is uniform attention, 0 a single key."""
    sink: float
    """Largest share of all attention that one token of a text receives."""
    sink_error: float
    """Its standard error over texts."""
    sink_position: int
    """Where that token stands in most texts: 0 first, -1 last, 1 elsewhere."""
    kappa: float
    """Median over the tokens of a text of |B^T s + g|, averaged over texts."""
    copying: float
    """Mean cosine between what the head emits and what it attended: it copies (+) or suppresses (-) that."""
    copying_error: float
    """Its standard error over texts."""


@dataclass(frozen=True)
class TextLayer:
    """One layer on text, averaged over texts."""

    layer: int
    kappa: float
    """Median of the heads' kappa."""
    d_eff: float
    """Participation ratio (tr S)^2 / tr S^2 of the tokens' covariance S."""
    kappa_over_dimension: float
    mean_cosine: float
    """Mean cosine between two tokens of a text in the hidden states that enter the layer: 1 is full collapse."""
    effective_rank: float
    """Of the directions of these hidden states."""
    point_cosine: float
    """Mean cosine between the points of the sphere that attention sees, without the norm's gain and shift."""
    transport: float | None
    """Chordal W2 between the tokens that this layer sees and those that the next one sees (None for the last)."""
    entropy: float
    sink: float
    directions: float
    """In how many directions the layer's updates of all tokens of all texts differ (participation ratio)."""
    directions_error: float
    """Its standard error over groups of texts."""


@dataclass(frozen=True)
class TextAudit:
    """Everything measured on text (or images, or sequences of vectors)."""

    item: str
    """What the model reads one of: "text", "image" or "sequence"."""
    texts: int
    tokens: int
    limit: int | None
    """Tokens after which a text is cut."""
    cut: int
    """Texts that were longer, and were cut."""
    empty: int
    """Texts left out because they hold no token of their own."""
    unknown: float
    """Share of the texts' tokens that the tokenizer does not know."""
    verification: Verification
    """The model's own attention on the longest of these texts against what was rebuilt, in every layer."""
    layers: list[TextLayer]
    heads: list[TextHead] = field(repr=False)
    forecasts: list[StepForecasts]
    closures: dict[str, float]
    """Mean cosine between the model's embedding and the one with every softmax replaced."""
    closures_spread: dict[str, float]
    depth: list[DepthPoint]
    """How alike tokens are at the input of every layer and at the output of the last."""
    lengths: list[LengthPoint]
    """What depends on the length of a text, for texts cut after 8, 16, ... tokens; empty for images."""
    longest: int
    """Tokens of the longest text."""
    positional: int
    """Layers whose scores see positions (a rotation, a window, a bias)."""

    @property
    def length(self) -> float:
        """Mean number of tokens of a text."""
        return self.tokens / self.texts


def audit_text(
    encoder: Encoder, texts: Any, report: Callable[[str], None] = lambda text: None, *, seed: int = 0
) -> TextAudit:
    """Audit an encoder on texts (or whatever the model reads)."""
    kept, empty = readable(encoder, texts)
    lengths = encoder.inputs.lengths(kept) if encoder.inputs.kind == "text" else [0]
    limit = encoder.inputs.max_tokens or math.inf
    unknown = encoder.inputs.unknown(kept) if encoder.inputs.kind == "text" else 0.0
    report("attention rebuilt on the texts")
    verification = verify_on(encoder, kept)
    sums = [_LayerSums(layer, seed) for layer in encoder.layers]
    tokens, longest = 0, 0
    cosines: list[list[float]] = []
    ranks: list[list[float]] = []
    for i, text in enumerate(kept):
        report(f"text {i + 1} of {len(kept)}")
        states, points = encoder.states_and_points(text)
        tokens, longest = tokens + points.shape[1], max(longest, points.shape[1])
        alike, rank = similarity(states)
        cosines.append(alike)
        ranks.append(rank)
        for l, total in enumerate(sums):
            total.add(points[l], points[l + 1] if l + 1 < len(points) else None)
    depth = depth_points(cosines, ranks)
    report("closures in the whole network")
    closures = closure_cosines(encoder, kept)
    return TextAudit(
        item=ITEMS[encoder.inputs.kind],
        texts=len(kept),
        tokens=tokens,
        limit=encoder.inputs.max_tokens,
        cut=sum(length > limit for length in lengths),
        empty=empty,
        unknown=unknown,
        verification=verification,
        layers=[total.layer_audit(point) for total, point in zip(sums, depth[:-1], strict=True)],
        heads=[head for total in sums for head in total.head_audits()],
        forecasts=[total.forecasts() for total in sums],
        closures={name: mean(values) for name, values in closures.items()},
        closures_spread={name: standard_error(values) for name, values in closures.items()},
        depth=depth,
        lengths=length_curve(encoder, kept, report),
        longest=longest,
        positional=sum(layer.positions.seen for layer in encoder.layers),
    )


def readable(encoder: Encoder, texts: Any) -> tuple[list[Any], int]:
    """Texts with at least one token of their own, and how many were left out.

    Texts most of whose tokens the tokenizer does not know are refused.
    """
    if isinstance(texts, str):
        texts = [texts]
    try:
        items = list(texts)
    except Exception:
        raise InvalidInput(f"texts must be a list, got {shown(texts)}") from None
    if not items:
        raise InvalidInput(
            "texts must hold at least one text, got none (leave texts out to audit the weights alone)"
        )
    kept = [
        item for item in items if not isinstance(item, str) or (item.strip() and encoder.inputs.own_tokens(item))
    ]
    if not kept:
        told = "the text is" if len(items) == 1 else f"all {len(items)} texts are"
        raise InvalidInput(f"{told} empty (the tokenizer reads no token), so there is nothing to measure")
    unknown = encoder.inputs.unknown(kept) if encoder.inputs.kind == "text" else 0.0
    if unknown > UNKNOWN:
        raise InvalidInput(
            f"{unknown:.0%} of the texts' tokens are unknown to the tokenizer: this is not the text (or not the "
            "tokenizer) that the model was made for"
        )
    return kept, len(items) - len(kept)


class _LayerSums:
    """Running lists of one layer's measurements, one entry per text."""

    def __init__(self, layer: Layer, seed: int) -> None:
        self.layer = layer
        self.one_step = OneStep.of(layer, seed)
        self.entropy: list[Tensor] = []
        self.sink: list[Tensor] = []
        self.place: list[Tensor] = []
        self.kappa: list[Tensor] = []
        self.copying: list[Tensor] = []
        self.updates = UpdateMoments(layer.d)
        self.scalars: dict[str, list[float]] = {"d_eff": [], "cosine": [], "transport": []}
        self.steps: list[tuple[dict[str, float], dict[str, float | None]]] = []

    def add(self, points: Float[Tensor, "n d"], following: Float[Tensor, "n d"] | None) -> None:
        entropy, sink, place = attention_summary(self.layer, points)
        self.entropy.append(entropy.cpu())
        self.sink.append(sink.cpu())
        self.place.append(place.cpu())
        self.kappa.append(kappas(self.layer, points).cpu())
        self.copying.append(copying(self.layer, points).cpu())
        self.updates.add(self.layer.norm.centre(self.layer.update(points)))
        n = len(points)
        self.scalars["d_eff"].append(participation(points))
        self.scalars["cosine"].append(mean_cosines(points[None])[0])
        if following is not None:
            pick = torch.linspace(0, n - 1, min(n, TRANSPORT_TOKENS)).round().long()
            self.scalars["transport"].append(
                float(wasserstein(Measure(points[pick].cpu()), Measure(following[pick].cpu()), metric="chordal"))
            )
        self.steps.append(self.one_step.cosines(points))

    def layer_audit(self, point: DepthPoint) -> TextLayer:
        kappa = statistics.median(head.kappa for head in self.head_audits())
        d_eff = mean(self.scalars["d_eff"])
        return TextLayer(
            layer=self.layer.index,
            kappa=kappa,
            d_eff=d_eff,
            kappa_over_dimension=kappa / max(d_eff - 1, 1e-9),
            mean_cosine=point.mean_cosine,
            effective_rank=point.effective_rank,
            point_cosine=mean(self.scalars["cosine"]),
            transport=mean(self.scalars["transport"]) if self.scalars["transport"] else None,
            entropy=float(torch.stack(self.entropy).mean()),
            sink=float(torch.stack(self.sink).mean()),
            directions=self.updates.directions,
            directions_error=self.updates.error,
        )

    def head_audits(self) -> list[TextHead]:
        entropy, sink = torch.stack(self.entropy).mean(dim=0), torch.stack(self.sink).mean(dim=0)
        kappa = torch.stack([k.median(dim=1).values for k in self.kappa]).mean(dim=0)
        place = torch.stack(self.place).mode(dim=0).values
        copying = torch.stack(self.copying)
        return [
            TextHead(
                layer=self.layer.index,
                head=h,
                entropy=float(entropy[h]),
                sink=float(sink[h]),
                sink_error=standard_error([float(one[h]) for one in self.sink]),
                sink_position=int(place[h]),
                kappa=float(kappa[h]),
                copying=float(copying[:, h].mean()),
                copying_error=standard_error(copying[:, h].tolist()),
            )
            for h in range(len(self.layer.heads))
        ]

    def forecasts(self) -> StepForecasts:
        cosine = {name: [step[0][name] for step in self.steps] for name in NAMES}
        control = {name: [v for step in self.steps if (v := step[1][name]) is not None] for name in NAMES}
        return StepForecasts(
            self.layer.index,
            {name: mean(values) for name, values in cosine.items()},
            {name: mean(values) if values else None for name, values in control.items()},
            {name: standard_error(values) for name, values in cosine.items()},
        )
