"""Hardmax between its switches: every token attends to fixed keys, and the field is smooth.

A token whose best key is j follows x' = P_x V x_j until another key k scores as much. There either k takes over,
or, when each of the two fields leads back to the other key, the token slides along the jump: it attends to both,
with the weights a_j + a_k = 1 that keep their scores equal (Filippov's solution). With s_ij = <x_i, B x_j> the
active keys of token i have equal scores and equal rates d s_ij/dt, weights a_ij >= 0, and no other key of the same
score rises faster.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.flows.drift import Drift
from metastable.flows.flow import Flow
from metastable.rowwise import project_tangent
from metastable.weights import AttentionWeights

MOST_TIED = 4
"""Keys of one score among which all subsets are tried; of more, those of the highest rates."""
ROUNDS = 3
"""Passes over the tied tokens: the keys that one of them takes change the rates of others that look at it."""


@dataclass(frozen=True, eq=False)
class Keys:
    """The keys of every token: one each (`best`), and more for the tokens that slide."""

    best: Tensor
    """(n,): the first key of every token."""
    tokens: tuple[int, ...] = ()
    extra: tuple[int, ...] = ()
    """Further keys of sliding tokens: token tokens[c] also attends to key extra[c]."""

    def of(self, token: int) -> list[int]:
        """All keys of a token."""
        return [int(self.best[token]), *(k for i, k in zip(self.tokens, self.extra, strict=True) if i == token)]

    def with_keys(self, token: int, keys: Sequence[int]) -> Keys:
        """The same with other keys of one token."""
        best = self.best.clone()
        best[token] = keys[0]
        kept = [(i, k) for i, k in zip(self.tokens, self.extra, strict=True) if i != token]
        pairs = sorted([*kept, *((token, k) for k in keys[1:])])
        return Keys(best, tuple(i for i, _ in pairs), tuple(k for _, k in pairs))


class FixedKeys(Flow):
    """x_i' = P_{x_i} V sum_{j in S_i} a_ij x_j, the keys S_i fixed, with weights that keep their scores equal."""

    def __init__(self, weights: AttentionWeights, keys: Keys) -> None:
        self.weights, self.keys = weights, keys

    @property
    def d(self) -> int:
        """Dimension of the tokens."""
        return self.weights.d

    def drift(self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Drift:
        """V y_i before the projection."""
        attended = points[self.keys.best]
        if self.keys.tokens:
            shares, jumps = self._shares(points)
            attended = attended.index_add(0, torch.tensor(self.keys.tokens), shares[:, None] * jumps)
        return Drift(self.weights.values(attended), 4 * self.weights.V_norm, self.weights.after_average)

    def shares(self, points: Float[Tensor, "n d"]) -> Float[Tensor, "c"]:
        """The weights of the further keys of sliding tokens, and after them those of their first keys."""
        if not self.keys.tokens:
            return points.new_zeros(0)
        shares, _ = self._shares(points)
        slid = sorted(set(self.keys.tokens))
        place = {token: row for row, token in enumerate(slid)}
        first = shares.new_ones(len(slid)).index_add(
            0, torch.tensor([place[token] for token in self.keys.tokens]), -shares
        )
        return torch.cat([shares, first])

    def rates(self, points: Float[Tensor, "n d"], token: int, keys: Sequence[int]) -> Float[Tensor, "k"]:
        """d <x_i, B x_j>/dt for token i and those keys j."""
        velocity = self.velocity(0.0, points, points.new_ones(len(points)))
        queries = self.weights.B_transpose(points[[token]])[0]
        moved = self.weights.B_transpose(velocity[[token]])[0]
        return points[list(keys)] @ moved + velocity[list(keys)] @ queries

    def _shares(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Weights of the further keys, with which all active scores of a token rise alike; x_extra - x_first."""
        tokens, extra = torch.tensor(self.keys.tokens), torch.tensor(self.keys.extra)
        first = self.keys.best[tokens]
        jumps = points[extra] - points[first]
        alone = project_tangent(points, self.weights.apply_V(points[self.keys.best]))
        turn = project_tangent(points[tokens], self.weights.apply_V(jumps))
        pulled, looked = self.weights.B_transpose(points[tokens]), self.weights.B_transpose
        start = (looked(alone[tokens]) * jumps).sum(1) + ((alone[extra] - alone[first]) * pulled).sum(1)
        # How the share of contact c changes the rate of contact b: through the token itself and through its keys.
        own = (tokens[:, None] == tokens).to(points) * (jumps @ looked(turn).T)
        keys = ((extra[:, None] == tokens).to(points) - (first[:, None] == tokens).to(points)) * (pulled @ turn.T)
        return torch.linalg.lstsq(own + keys, -start[:, None], driver="gelsd").solution[:, 0], jumps


def scores(
    weights: AttentionWeights, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]
) -> Float[Tensor, "n n"]:
    """<x_i, B x_j>; minus infinity where x_j has no mass, so that nobody attends to it."""
    found = weights.queries(points) @ weights.keys(points).T
    return found.masked_fill_(mass <= 0, -math.inf)


def find_keys(
    weights: AttentionWeights, points: Float[Tensor, "n d"], tie: float, mass: Float[Tensor, "n"]
) -> Keys:
    """The keys that the tokens take from here on: the best one, or what follows from ties within `tie`."""
    found = scores(weights, points, mass)
    top, best = found.max(dim=1)
    keys = Keys(best)
    close = found >= top[:, None] - tie
    tied = torch.nonzero(close.sum(1) > 1)[:, 0].tolist()
    if not tied:
        return keys
    candidates = {i: _distinct(points, torch.nonzero(close[i])[:, 0].tolist(), int(best[i]), tie) for i in tied}
    for _ in range(ROUNDS):
        before = keys
        for token, among in candidates.items():
            if len(among) > 1:
                keys = keys.with_keys(token, _consistent(weights, points, keys, token, among))
        if [before.of(i) for i in tied] == [keys.of(i) for i in tied]:
            break
    return keys


def _distinct(points: Tensor, keys: list[int], best: int, tie: float) -> list[int]:
    """Keys at different places: those that coincide to rounding are one, whichever it is."""
    kept = [best]
    for key in keys:
        if all(float((points[key] - points[other]).abs().max()) > tie for other in kept):
            kept.append(key)
    return kept


def _consistent(weights: AttentionWeights, points: Tensor, keys: Keys, token: int, among: list[int]) -> list[int]:
    """The subset of keys of equal score on which the token stays: weights >= 0, and no other key rises faster."""
    if len(among) > MOST_TIED:
        rates = FixedKeys(weights, keys).rates(points, token, among)
        among = [among[int(i)] for i in rates.argsort(descending=True)[:MOST_TIED]]
    fallback, least = [among[0]], float("inf")
    for size in range(1, len(among) + 1):
        for subset in itertools.combinations(among, size):
            flow = FixedKeys(weights, keys.with_keys(token, subset))
            shares = _shares_of(flow, points, token)
            rates = flow.rates(points, token, among)
            active = rates[[among.index(k) for k in subset]]
            excess = max(float(rates.max() - active.min()), -float(shares.min()))
            if excess <= 1e-12 * (1 + float(rates.abs().max())):
                return list(subset)
            if excess < least:
                fallback, least = list(subset), excess
    return fallback


def _shares_of(flow: FixedKeys, points: Tensor, token: int) -> Tensor:
    """The weights of all keys of one token."""
    if token not in flow.keys.tokens:
        return points.new_ones(1)
    shares, _ = flow._shares(points)
    own = shares[[c for c, i in enumerate(flow.keys.tokens) if i == token]]
    return torch.cat([own, 1 - own.sum()[None]])
