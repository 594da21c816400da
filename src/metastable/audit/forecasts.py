"""One step of attention forecast from moments, against the truth: zero temperature, Gaussian tilt, uniform, argmax.

The truth is the layer's update u_i = sum_h A_h m_h(s_i). A forecast replaces the attended mean m_h by
    zero temperature   (B_h^T s + g_h) / |B_h^T s + g_h|    the limit of the theory
    Gaussian tilt      mu + Sigma (B_h^T s + g_h)           the Laplace principle on an ellipsoid
    uniform            mu                                   attention without scores
    argmax             the token of largest logit           attention without temperature
with mu, Sigma the mean and covariance of the text's own tokens. A bias by position and a window are in the truth
and in the last three alike (they weigh the tokens of mu and Sigma, see `closures`). From the zero-temperature
limit, in which bounded weights of keys do not matter, they drop out; a rotation is that of two tokens at one place.
No forecast attends first and last token apart. The control hands head h another head's scores, bias and all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.audit.closures import gaussian, mean
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

    def at(self, index: Tensor) -> Float[Tensor, "h n r"]:
        """Values of the keys `index` (H, n)."""
        return torch.gather(self.v, 1, index[..., None].expand(-1, -1, self.v.shape[2]))

    def emit(self, attended: Float[Tensor, "h n r"]) -> Float[Tensor, "n d"]:
        """sum_h A_h m_h, centred as the next norm will have it."""
        _, output = self.layer.values_outputs
        return self.layer.norm.centre(torch.einsum("hnr,hdr->nd", attended, output))


def attended(tokens: HeadTokens) -> tuple[Tensor, Tensor]:
    """True attended values (H, n, r) and the index of the best key (H, n), by blocks of rows."""
    true, best = [], []
    for _, logits in tokens.layer.logit_blocks(tokens.q, tokens.k):
        true.append(torch.softmax(logits, dim=-1) @ tokens.v)
        best.append(logits.argmax(dim=-1))
    return torch.cat(true, dim=1), torch.cat(best, dim=1)


@dataclass(frozen=True, eq=False)
class Matching:
    """Which head's scores every head uses, and the products K K^T, K V^T of its r x r factors (no text needed)."""

    match: Tensor
    key_key: Float[Tensor, "h r r"]
    key_value: Float[Tensor, "h r v"]

    @classmethod
    def of(cls, layer: Layer, match: Tensor) -> Matching:
        """The products for one matching of scores to values."""
        _, key = layer.queries_keys
        value, _ = layer.values_outputs
        key = layer.norm.centre(key)[match]
        return cls(match, key @ key.mT, key @ value.mT)

    def zero_temperature(self, tokens: HeadTokens) -> Tensor:
        """A e with e = (B^T s + g)/|B^T s + g|, carried to the head's values: (V K^T) q / |K^T q|."""
        q = tokens.still_q[self.match]
        length = torch.sqrt(((q @ self.key_key) * q).sum(dim=2, keepdim=True).clamp_min(1e-300))
        return (q @ self.key_value) / length


@dataclass(frozen=True)
class StepForecasts:
    """Mean cosine of each forecast with the true update of a layer, and of its control."""

    layer: int
    cosine: dict[str, float]
    control: dict[str, float | None]
    """With the scores of other heads; None for `uniform`, which uses no scores."""
    spread: dict[str, float]
    """Standard error of the cosine over texts (0 for one text)."""


@dataclass(frozen=True, eq=False)
class OneStep:
    """One layer, its own matching of scores to values and the re-matchings of the control."""

    layer: Layer
    own: Matching
    others: list[Matching]

    @classmethod
    def of(cls, layer: Layer, seed: int = 0) -> OneStep:
        """What the forecasts of one layer need of its weights, computed once for all texts."""
        own = Matching.of(layer, torch.arange(len(layer.heads), device=layer.device))
        others = [Matching.of(layer, match.to(layer.device)) for match in rematchings(len(layer.heads), seed)]
        return cls(layer, own, others)

    def cosines(self, points: Float[Tensor, "n d"]) -> tuple[dict[str, float], dict[str, float | None]]:
        """Cosines of the four forecasts with the truth for one text, and of their controls."""
        tokens = HeadTokens.of(self.layer, points)
        true_values, best = attended(tokens)
        truth = tokens.emit(true_values)
        forecasts: dict[str, Callable[[Matching], Tensor]] = {
            "zero_temperature": lambda m: m.zero_temperature(tokens),
            "gaussian": lambda m: gaussian(self.layer, tokens.q[m.match], tokens.k[m.match], tokens.v, m.match),
            "argmax": lambda m: tokens.at(best[m.match]),
        }
        cosine = {name: _cosine(truth, tokens.emit(make(self.own))) for name, make in forecasts.items()}
        cosine["uniform"] = _cosine(truth, tokens.emit(mean(self.layer, tokens.q, tokens.k, tokens.v)))
        control: dict[str, float | None] = {"uniform": None}
        for name, make in forecasts.items():
            found = [_cosine(truth, tokens.emit(make(other))) for other in self.others]
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


def _cosine(truth: Tensor, forecast: Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(truth, forecast, dim=1, eps=1e-300).mean())
