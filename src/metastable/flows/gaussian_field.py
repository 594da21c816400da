"""Gaussian fields common to all tokens of a system: Cov(W(x), W(y)) = kappa(<x, y>) I_d, sampled exactly.

A field is a linear function of standard normals, so that increments of a Brownian motion give those of the noise:
    Features   W(x) = sum_k phi_k(x) G_k,  <phi(x), phi(y)> = kappa   (polynomial kappa; any number of tokens)
    Gram       W(x_i) = sum_{j<=i} L_ij Z_j,  L L^T = kappa(<x_i, x_j>)   (any kappa; n^3/6 operations)
    RandomLayer  W(x) = W_2 sigma(W_1 x)/sqrt(m), a layer of width m, Gaussian given W_1 only
    Independent  W(x_i) = sqrt(kappa(1)) Z_i: not common, for comparison
Every one is the same for any number of threads, and token i does not depend on those after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numba
import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.errors import InvalidInput
from metastable.flows.covariance import Covariance
from metastable.threads import over_rows

Places = Sequence[Float[Tensor, "b n d"]]
"""Tokens of b systems at which one field is asked for, once or twice within a step."""

Fresh = Callable[[], Float[Tensor, "b ..."]]
"""Normals that a step draws anew, drawn only when they are needed."""

_compiled = numba.njit(nogil=True, cache=True, error_model="numpy")
MOST_FEATURES = 4096
"""Most monomials of a polynomial kappa that stand for it exactly; beyond, the Gram matrix is cheaper for up
to some thousand tokens."""
EPS = float(np.finfo(np.float64).eps)
ROUNDING = 64 * EPS
"""Rounding of kappa, in units of it and of the number of tokens, with room for a percent. A token whose noise the
tokens before it foretell, as w_1 W(x_1) + w_2 W(x_2) + ..., up to a variance below this times (1 + |w|^2)^(3/4),
has no noise of its own: it has merged, or the w are large and rounding of kappa makes up the rest. Of 19,000
systems of 12 to 100 tokens 1e-7 to .3 apart the covariance of none is off by more than .001 kappa(1), and none is
refused; with the power 1/2 some are off by more than all of it, and with .85 by .015."""
LITTLE = 1e-4
"""Variance of its own, in units of kappa(1), from which on a token is not asked for its w."""
NEGATIVE = 1e-8
"""A variance below minus this times kappa(1), and below what rounding makes of it, is no rounding: kappa is no
covariance there."""


@runtime_checkable
class Field(Protocol):
    """How the noise of one step at the tokens comes from standard normals."""

    def size(self, n: int, d: int) -> tuple[int, ...]:
        """Shape of the normals of a system that are increments of a Brownian motion."""
        ...

    def fresh(self, n: int, d: int) -> tuple[int, ...]:
        """Shape of the normals that every step draws anew."""
        ...

    def at(
        self, places: Places, driving: Float[Tensor, "b ..."], fresh: Fresh, duration: float
    ) -> list[Float[Tensor, "b n d"]]:
        """W at all of the places, one realisation: driving has the variance `duration`, fresh() the variance 1."""
        ...


class Features:
    """kappa(g) = sum_k c_k g^k: monomials of x up to the degree of kappa, each with its own Gaussian vector."""

    def __init__(self, coefficients: Sequence[float]) -> None:
        self.coefficients = tuple(coefficients)

    def count(self, d: int) -> int:
        """Number of features: 1, d, d^2, ... of the degrees that are there."""
        return sum(d**k for k, c in enumerate(self.coefficients) if c > 0)

    def size(self, n: int, d: int) -> tuple[int, ...]:
        """One vector for every feature."""
        return self.count(d), d

    def fresh(self, n: int, d: int) -> tuple[int, ...]:
        """None."""
        return (0,)

    def at(self, places: Places, driving: Tensor, fresh: Fresh, duration: float) -> list[Tensor]:
        """sum_k phi_k(x) G_k."""
        return [contracted(self.features(x), driving) for x in places]

    def features(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n f"]:
        """sqrt(c_k) x (x) ... (x) x, k times."""
        power, parts = torch.ones_like(x[..., :1]), []
        for k, c in enumerate(self.coefficients):
            if k > 0:
                power = (power.unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2)
            if c > 0:
                parts.append(math.sqrt(c) * power)
        return torch.cat(parts, dim=-1)


class Gram:
    """Any kappa: the triangular root of its matrix at the tokens; at further places given the first ones."""

    def __init__(self, covariance: Covariance) -> None:
        self.covariance = covariance

    def size(self, n: int, d: int) -> tuple[int, ...]:
        """One vector for every token."""
        return n, d

    def fresh(self, n: int, d: int) -> tuple[int, ...]:
        """What the field at a second set of places has of its own, given the first."""
        return n, d

    def at(self, places: Places, driving: Tensor, fresh: Fresh, duration: float) -> list[Tensor]:
        """L Z."""
        x = torch.cat(list(places), dim=1).contiguous()
        normals = driving if len(places) == 1 else torch.cat([driving, math.sqrt(duration) * fresh()], dim=1)
        matrix = self.covariance.function(overlaps(x))
        found = rooted(np.ascontiguousarray(matrix), normals, self.covariance.one)
        return list(found.split(places[0].shape[1], dim=1))


class RandomLayer:
    """W_2 sigma(W_1 x)/sqrt(m): W_1 (m, d) is drawn anew in every step, W_2 is the Brownian motion."""

    def __init__(self, activation: Any, width: int) -> None:
        self.activation, self.width = activation, width

    def size(self, n: int, d: int) -> tuple[int, ...]:
        """W_2^T."""
        return self.width, d

    def fresh(self, n: int, d: int) -> tuple[int, ...]:
        """W_1^T."""
        return d, self.width

    def at(self, places: Places, driving: Tensor, fresh: Fresh, duration: float) -> list[Tensor]:
        """The layer at all places."""
        first = fresh()
        hidden = [self.activation(contracted(x, first)) / math.sqrt(self.width) for x in places]
        return [contracted(layer.contiguous(), driving) for layer in hidden]


class Independent:
    """sqrt(kappa(1)) Z_i: every token has a noise of its own."""

    def __init__(self, covariance: Covariance) -> None:
        self.amplitude = math.sqrt(covariance.one)

    def size(self, n: int, d: int) -> tuple[int, ...]:
        """One vector for every token."""
        return n, d

    def fresh(self, n: int, d: int) -> tuple[int, ...]:
        """None."""
        return (0,)

    def at(self, places: Places, driving: Tensor, fresh: Fresh, duration: float) -> list[Tensor]:
        """The same wherever the tokens are."""
        return [self.amplitude * driving for _ in places]


def exact_field(covariance: Covariance, d: int) -> Features | Gram:
    """The cheaper of the exact fields in dimension d."""
    if covariance.coefficients is not None:
        features = Features(covariance.coefficients)
        if features.count(d) <= MOST_FEATURES:
            return features
    return Gram(covariance)


def contracted(rows: Float[Tensor, "b n f"], vectors: Float[Tensor, "b f d"]) -> Float[Tensor, "b n d"]:
    """sum_f rows_if vectors_f, added up in one order whatever the number of threads."""
    b, n, features = rows.shape
    flat, out = rows.reshape(b * n, features).numpy(), np.empty((b * n, vectors.shape[2]))
    right = vectors.numpy()

    def work(start: int, stop: int) -> None:
        _contract(start, stop, n, flat, right, out)

    over_rows(work, b * n, cost=float(flat.size) * right.shape[2])
    return torch.from_numpy(out).view(b, n, -1)


def overlaps(points: Float[Tensor, "b n d"]) -> Float[np.ndarray, "b n n"]:
    """<x_i, x_j> in [-1, 1], one on the diagonal; below it only."""
    x = points.numpy()
    b, n, d = x.shape
    out = np.ones((b, n, n))

    def work(start: int, stop: int) -> None:
        _overlaps(start, stop, x, out)

    over_rows(work, b * n, cost=b * n * n * d / 2.0)
    return out


def rooted(
    matrices: Float[np.ndarray, "b n n"], normals: Float[Tensor, "b n d"], one: float
) -> Float[Tensor, "b n d"]:
    """L Z with L L^T = K, positive semidefinite, read below the diagonal; the matrices are overwritten."""
    b, n = matrices.shape[:2]
    z = normals.contiguous().numpy()
    out, lowest = np.empty_like(z), np.zeros(b)

    def work(start: int, stop: int) -> None:
        _rooted(start, stop, matrices, z, ROUNDING * n * one, NEGATIVE * one, out, lowest)

    over_rows(work, b, cost=b * (n**3 / 6.0 + n * n * z.shape[2]))
    if (lowest < 0).any():
        raise InvalidInput(
            f"covariance must be positive semidefinite, got a pivot {lowest.min():.3g} at the tokens of a run"
        )
    return torch.from_numpy(out)


@_compiled
def _contract(start, stop, n, rows, vectors, out):  # type: ignore[no-untyped-def]
    for i in range(start, stop):
        system = i // n
        for a in range(out.shape[1]):
            out[i, a] = 0.0
        for f in range(rows.shape[1]):
            for a in range(out.shape[1]):
                out[i, a] += rows[i, f] * vectors[system, f, a]


@_compiled
def _overlaps(start, stop, x, out):  # type: ignore[no-untyped-def]
    n, d = x.shape[1], x.shape[2]
    for row in range(start, stop):
        s, i = row // n, row % n
        for j in range(i):
            total = 0.0
            for a in range(d):
                total += x[s, i, a] * x[s, j, a]
            out[s, i, j] = min(max(total, -1.0), 1.0)


@_compiled
def _rooted(start, stop, matrices, z, zero, negative, out, lowest):  # type: ignore[no-untyped-def]
    # Row by row, so that a row depends only on those before it; one without noise of its own foretells nothing.
    n, d = z.shape[1], z.shape[2]
    w = np.empty(n)
    for s in range(start, stop):
        root = matrices[s]
        largest = root[0, 0]
        for i in range(n):
            for j in range(i):
                rest = root[i, j]
                for k in range(j):
                    rest -= root[i, k] * root[j, k]
                root[i, j] = rest / root[j, j] if root[j, j] > 0 else 0.0
            own = root[i, i]
            for k in range(i):
                own -= root[i, k] * root[i, k]
            square = 1.0
            if own < LITTLE * largest:
                for k in range(i):
                    w[k] = root[i, k]
                for j in range(i - 1, -1, -1):  # L^T w = the row
                    if root[j, j] > 0:
                        w[j] /= root[j, j]
                        square += w[j] * w[j]
                        for k in range(j):
                            w[k] -= root[j, k] * w[j]
            if own < -(negative + zero * square):
                lowest[s] = min(lowest[s], own)
            root[i, i] = math.sqrt(own) if own > zero * math.sqrt(square * math.sqrt(square)) else 0.0
            for a in range(d):
                out[s, i, a] = 0.0
            for j in range(i + 1):
                for a in range(d):
                    out[s, i, a] += root[i, j] * z[s, j, a]
