"""One step of attention forecast from moments, against the truth: zero temperature, Gaussian tilt, uniform, argmax.

The truth is the layer's update u_i = sum_h A_h m_h(s_i). A forecast replaces the attended mean m_h by
    zero temperature   (B_h^T s + g_h) / |B_h^T s + g_h|    the limit of the theory
    Gaussian tilt      mu + Sigma (B_h^T s + g_h)           the Laplace principle on an ellipsoid
    uniform            mu                                   attention without scores
    argmax             the token of largest logit           attention without temperature
with mu, Sigma the mean and covariance of the text's own tokens. The control hands head h another head's scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.encoders import Layer

NAMES = ("zero_temperature", "gaussian", "uniform", "argmax")
CONTROLS = 4
"""Number of random re-matchings of heads that a control averages over."""


@dataclass(frozen=True, eq=False)
class HeadTokens:
    """Tokens of one text as one layer's heads see them: rows q, k, v (H, n, r), and where they emit to."""

    layer: Layer
    q: Float[Tensor, "h n r"]
    k: Float[Tensor, "h n r"]
    still_q: Float[Tensor, "h n r"]
    """Queries without rotation: what the zero-temperature limit looks at."""
    v: Float[Tensor, "h n r"]

    @classmethod
    def of(cls, layer: Layer, points: Float[Tensor, "n d"]) -> HeadTokens:
        """Project the tokens of a text."""
        q, k = layer.scores(points)
        query, _ = layer.queries_keys
        still = torch.einsum("nd,hrd->hnr", points, query) + layer.query_shift[:, None]
        value, _ = layer.values_outputs
        return cls(layer, q, k, still, torch.einsum("nd,hrd->hnr", points, value))

    def emit(self, attended: Float[Tensor, "h n r"]) -> Float[Tensor, "n d"]:
        """sum_h A_h m_h, centred as the next norm will have it."""
        _, output = self.layer.values_outputs
        return self.layer.norm.centre(torch.einsum("hnr,hdr->nd", attended, output))


def attended(tokens: HeadTokens) -> tuple[Tensor, Tensor]:
    """True attended values and those of the best key, (H, n, r) each, by blocks of rows."""
    true, best = [], []
    for _, logits in tokens.layer.logit_blocks(tokens.q, tokens.k):
        true.append(torch.softmax(logits, dim=-1) @ tokens.v)
        index = logits.argmax(dim=-1)
        best.append(torch.gather(tokens.v, 1, index[..., None].expand(-1, -1, tokens.v.shape[2])))
    return torch.cat(true, dim=1), torch.cat(best, dim=1)


def gaussian(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """mean(v) + Cov(v, k) q: the tilt of a Gaussian cloud of keys and values, head by head."""
    mean = v.mean(dim=1, keepdim=True)
    covariance = (v - mean).mT @ (k - k.mean(dim=1, keepdim=True)) / k.shape[1]
    return mean + q @ covariance.mT


def _zero_temperature(tokens: HeadTokens, match: Tensor) -> Tensor:
    """A e with e = (B^T s + g)/|B^T s + g|, carried to the head's values: (V K^T) q / |K^T q| in r x r factors."""
    _, key = tokens.layer.queries_keys
    key = tokens.layer.norm.centre(key)[match]
    value, _ = tokens.layer.values_outputs
    q = tokens.still_q[match]
    length = torch.sqrt(((q @ (key @ key.mT)) * q).sum(dim=2, keepdim=True).clamp_min(1e-300))
    return (q @ (key @ value.mT)) / length


@dataclass(frozen=True)
class StepForecasts:
    """Mean cosine of each forecast with the true update of a layer, and of its control."""

    layer: int
    cosine: dict[str, float]
    control: dict[str, float | None]
    """With the scores of other heads; None for `uniform`, which uses no scores."""
    spread: dict[str, float]
    """Standard error of the cosine over texts (0 for one text)."""


def cosines(
    layer: Layer, points: Float[Tensor, "n d"], seed: int = 0
) -> tuple[dict[str, float], dict[str, float | None]]:
    """Cosines of the four forecasts and their controls for one text at one layer."""
    tokens = HeadTokens.of(layer, points)
    true_values, best = attended(tokens)
    truth = tokens.emit(true_values)
    own = torch.arange(len(layer.heads))
    mean = tokens.v.mean(dim=1, keepdim=True).expand_as(tokens.v)
    forecasts: dict[str, Callable[[Tensor], Tensor]] = {
        "zero_temperature": lambda match: _zero_temperature(tokens, match),
        "gaussian": lambda match: gaussian(tokens.q[match], tokens.k[match], tokens.v),
        "argmax": lambda match: best if match is own else _argmax(tokens, match),
    }
    cosine = {name: _cosine(truth, tokens.emit(make(own))) for name, make in forecasts.items()}
    cosine["uniform"] = _cosine(truth, tokens.emit(mean))
    control: dict[str, float | None] = {"uniform": None}
    matches = rematchings(len(layer.heads), seed)
    for name, make in forecasts.items():
        found = [_cosine(truth, tokens.emit(make(match))) for match in matches]
        control[name] = sum(found) / len(found) if found else None
    return {n: cosine[n] for n in NAMES}, {n: control[n] for n in NAMES}


def rematchings(n_heads: int, seed: int) -> list[Tensor]:
    """Random permutations of the heads without a fixed point, seeded; none for a single head."""
    if n_heads < 2:
        return []
    generator = torch.Generator().manual_seed(seed)
    found: list[Tensor] = []
    own = torch.arange(n_heads)
    while len(found) < CONTROLS:
        match = torch.randperm(n_heads, generator=generator)
        if not bool((match == own).any()):
            found.append(match)
    return found


def _argmax(tokens: HeadTokens, match: Tensor) -> Tensor:
    rows = []
    for _, logits in tokens.layer.logit_blocks(tokens.q, tokens.k):
        index = logits.argmax(dim=-1)[match]
        rows.append(torch.gather(tokens.v, 1, index[..., None].expand(-1, -1, tokens.v.shape[2])))
    return torch.cat(rows, dim=1)


def _cosine(truth: Tensor, forecast: Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(truth, forecast, dim=1, eps=1e-300).mean())
