"""`Layer`: one trained attention layer, its norm folded into the weights of its heads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.encoders.norm import Norm
from metastable.encoders.positions import Positions
from metastable.errors import InvalidInput
from metastable.flows import MultiHead, SelfAttention
from metastable.weights import AttentionWeights

BLOCK_ENTRIES = 1 << 22
"""Attention is formed in blocks of at most this many entries over all heads, never as a whole."""


@dataclass(frozen=True, eq=False)
class RawAttention:
    """The layer as stored: q = W_q x + b_q and so on, weights (H d_h, d), W_o (d, H d_h)."""

    query: Float[Tensor, "a d"]
    key: Float[Tensor, "a d"]
    value: Float[Tensor, "a d"]
    output: Float[Tensor, "d a"]
    query_bias: Float[Tensor, "a"]
    key_bias: Float[Tensor, "a"]
    value_bias: Float[Tensor, "a"]
    output_bias: Float[Tensor, "d"]
    n_heads: int
    scale: float

    def to(self, device: Any) -> RawAttention:
        """The same weights on another device."""
        held = {f.name: getattr(self, f.name) for f in fields(self)}
        moved: dict[str, Any] = {name: v.to(device) for name, v in held.items() if isinstance(v, Tensor)}
        return replace(self, **moved)


@dataclass(frozen=True, eq=False)
class Layer:
    """Logits s^T B_h s' + <g_h, s'>, update sqrt(d) sum_h A_h m_h + offset, for tokens s with |s| = 1.

    Folding x = sqrt(d) Gamma s + b into q = W_Q x + b_Q (and k, v), and dropping what does not depend on s', gives
        B_h = d scale Gamma W_Q^T W_K Gamma, g_h = sqrt(d) scale Gamma W_K^T (W_Q b + b_Q), A_h = W_O,h W_V,h Gamma,
    scale = 1/sqrt(d_h) as a rule. `heads[h]` holds B_h (as `.B`) and A_h (as `.V`) in factors of rank d_h.
    With RoPE, B_h is the score matrix of two tokens at the same position; `head(h, distance)` gives the others.
    """

    index: int
    heads: tuple[AttentionWeights, ...]
    fields: Float[Tensor, "h d"]
    query_shift: Float[Tensor, "h k"]
    key_shift: Float[Tensor, "h k"]
    offset: Float[Tensor, "d"]
    norm: Norm
    order: str
    """"post": the norm ends the previous block, so tokens live on its sphere; "pre": it only feeds attention."""
    positions: Positions
    raw: RawAttention

    @classmethod
    def fold(cls, index: int, raw: RawAttention, norm: Norm, order: str, positions: Positions) -> Layer:
        """The layer with its norm folded into the weights; all in float64."""
        d, width = raw.query.shape[1], raw.query.shape[0]
        h, k = raw.n_heads, width // raw.n_heads
        root = math.sqrt(raw.scale)
        gain = norm.gain
        q = (math.sqrt(d) * root) * (raw.query * gain).reshape(h, k, d)
        key = (math.sqrt(d) * root) * (raw.key * gain).reshape(h, k, d)
        v = (raw.value * gain).reshape(h, -1, d)
        o = raw.output.reshape(d, h, -1)
        query_shift = root * (raw.query @ norm.shift + raw.query_bias).reshape(h, k)
        key_shift = root * (raw.key @ norm.shift + raw.key_bias).reshape(h, k)
        heads = tuple(AttentionWeights.from_qkv(q[i], key[i], v[i], o[:, i]) for i in range(h))
        offset = raw.output @ (raw.value @ norm.shift + raw.value_bias) + raw.output_bias
        fields = torch.einsum("hkd,hk->hd", key, query_shift)
        return cls(index, heads, fields, query_shift, key_shift, offset, norm, order, positions, raw)

    @property
    def d(self) -> int:
        """Dimension of the tokens."""
        return self.norm.d

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.fields.device

    def to(self, device: Any) -> Layer:
        """The same layer on another device."""
        if torch.device(device) == self.device:
            return self
        moved = {
            n: getattr(self, n).to(device) for n in ("fields", "query_shift", "key_shift", "offset", "norm", "raw")
        }
        return replace(self, heads=tuple(w.to(device=device) for w in self.heads), **moved)

    @property
    def d_head(self) -> int:
        """Rank of a head."""
        return self.heads[0].rank

    @property
    def spherical(self) -> bool:
        """Whether the tokens themselves (and not only what attention sees of them) live on the sphere."""
        return self.order == "post" and self.norm.spherical

    @property
    def notes(self) -> tuple[str, ...]:
        """What keeps this layer from being the flow of the theory, one sentence each."""
        said = []
        if not self.norm.spherical:
            said.append("the input of this layer is not normalised, so its tokens have different lengths")
        elif self.order == "pre":
            said.append(
                "pre-norm: attention sees points of the sphere, but the residual stream that it moves is not on it"
            )
        if self.positions.frequencies is not None:
            said.append("RoPE: the score matrix B depends on the distance of two tokens; B is given for distance 0")
        if self.positions.window is not None:
            said.append(
                f"local attention: tokens more than {self.positions.window} positions apart do not interact"
            )
        if self.positions.bias is not None:
            said.append("a bias by relative position is added to the scores; the flow leaves it out")
        return tuple(said)

    @cached_property
    def queries_keys(self) -> tuple[Float[Tensor, "h k d"], Float[Tensor, "h k d"]]:
        """The factors of all heads stacked: B_h = queries[h]^T keys[h]."""
        return torch.stack([_factor(w.query) for w in self.heads]), torch.stack(
            [_factor(w.key) for w in self.heads]
        )

    @cached_property
    def values_outputs(self) -> tuple[Float[Tensor, "h k d"], Float[Tensor, "h d k"]]:
        """The factors of all heads stacked: A_h = outputs[h] values[h]."""
        return torch.stack([w.value for w in self.heads]), torch.stack([_factor(w.output) for w in self.heads])

    def head(self, h: int, distance: int = 0) -> AttentionWeights:
        """Head h for two tokens whose positions differ by `distance` = j - i (only RoPE depends on it)."""
        w = self.heads[h]
        if self.positions.frequencies is None or distance == 0:
            return w
        key = _factor(w.key)
        turned = Positions(self.positions.frequencies * distance).rotate(torch.stack((key.T, key.T), 1))[:, 1]
        return AttentionWeights.from_qkv(w.query, turned.T, w.value, w.output)

    def scores(self, points: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "h n k"], Float[Tensor, "h n k"]]:
        """Rows q_i, k_j of every head whose inner products are the logits (biases and rotation included)."""
        query, key = self.queries_keys
        q = torch.einsum("nd,hkd->hnk", points, query) + self.query_shift[:, None]
        k = torch.einsum("nd,hkd->hnk", points, key) + self.key_shift[:, None]
        return self.positions.rotate(q), self.positions.rotate(k)

    def attention_blocks(self, points: Float[Tensor, "n d"]) -> Iterator[tuple[slice, Float[Tensor, "h r n"]]]:
        """Attention probabilities by blocks of rows (queries): the n x n matrix is never held."""
        q, k = self.scores(points)
        for rows, logits in self.logit_blocks(q, k):
            yield rows, torch.softmax(logits, dim=-1)

    def logit_blocks(
        self, q: Float[Tensor, "h n k"], k: Float[Tensor, "h n k"]
    ) -> Iterator[tuple[slice, Float[Tensor, "h r n"]]]:
        """Logits <q_i, k_j>, with window and positional bias, by blocks of rows."""
        for rows, scores, places in self.score_blocks(q, k):
            yield rows, scores if places is None else scores + places

    def score_blocks(
        self, q: Float[Tensor, "h n k"], k: Float[Tensor, "h n k"]
    ) -> Iterator[tuple[slice, Float[Tensor, "h r n"], Float[Tensor, "b r n"] | None]]:
        """Scores <q_i, k_j> and, apart from them, what places add: a bias, -inf outside the window; by blocks.

        What places add is the same for all heads (b = 1) or each head's own (b = h); None: nothing. A rotation is
        in q and k.
        """
        n = k.shape[1]
        bias = None if self.positions.bias is None else self.positions.bias(n).to(q)
        place = torch.arange(n, device=q.device)
        step = max(1, BLOCK_ENTRIES // (len(self.heads) * n))
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            places = None if bias is None else bias[:, rows]
            if self.positions.window is not None:
                far = (place[rows, None] - place[None]).abs() > self.positions.window
                near = torch.zeros(1, *far.shape, dtype=q.dtype, device=q.device) if places is None else places
                places = near.masked_fill(far, -torch.inf)
            yield rows, q[:, rows] @ k.transpose(1, 2), places

    def attention(self, points: Float[Tensor, "n d"]) -> Float[Tensor, "h n n"]:
        """All attention probabilities at once: for small n and for checks."""
        return torch.cat([block for _, block in self.attention_blocks(points)], dim=1)

    def update(self, points: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """sum_h A_h m_h: what attention adds to every token, in units of s and without the constant offset."""
        value, output = self.values_outputs
        values = torch.einsum("nd,hkd->hnk", points, value)
        rows = [torch.einsum("hrk,hdk->rd", p @ values, output) for _, p in self.attention_blocks(points)]
        return torch.cat(rows)

    def flow(self, beta_scale: float = 1.0) -> MultiHead:
        """The layer as a flow on the sphere: s' = P_s C sum_h A_h m_h, logits beta_scale (s^T B_h s' + <g_h, s'>).

        C is the centring of the norm, so that centred tokens stay centred. The result is an ordinary `MultiHead`
        flow with one field per head; see `notes` for what it leaves out of this layer. It is residual: Euler's step
        of length one is the layer itself, s <- (s + C sum_h A_h m_h) / |.|, and `solve` with many of them loops it.

        A trained layer is known to the digits of its float32 weights: `solve(layer.flow(), points, t, rtol=1e-4)`
        tells where tokens go with half of the evaluations that the default tolerance takes.
        """
        if not (math.isfinite(beta_scale) and beta_scale >= 0):
            raise InvalidInput(f"beta_scale must be finite and >= 0, got {beta_scale}")
        heads = []
        for w, g in zip(self.heads, self.fields, strict=True):
            centred = self.norm.centre(_factor(w.output).T).T
            weights = AttentionWeights.from_qkv(w.query, w.key, w.value, centred)
            heads.append(SelfAttention(weights, beta_scale, field=beta_scale * g))
        return MultiHead(heads, residual=True)

    def __repr__(self) -> str:
        return (
            f"Layer({self.index}: {len(self.heads)} heads of rank {self.d_head}, d={self.d}, "
            f"{self.order}-norm, {self.norm.kind})"
        )


def _factor(tensor: Tensor | None) -> Tensor:
    assert tensor is not None  # every trained head is stored in factors
    return tensor
