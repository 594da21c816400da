"""What attention is computed of, as one value, and what kernels must know of it, each fact found once per call."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import OneLine, function, instance, number, shown
from metastable.attention.lengths import mass_extremes, mass_range, squared_lengths
from metastable.errors import InvalidInput

T = TypeVar("T")


class Arrays(NamedTuple):
    """The tensors of a call as numpy arrays in C order, copied only where they are in another one."""

    queries: np.ndarray
    keys: np.ndarray
    values: np.ndarray
    mass: np.ndarray


class Masses(NamedTuple):
    """What kernels must know of the masses: the least positive one, the largest, and their sum."""

    least: float
    largest: float
    total: float


@dataclass(frozen=True, eq=False, repr=False)
class Operands(OneLine):
    """m_i = sum_j m_j e^{beta <q_i, k_j>} v_j / Z_i: the q, k, v, m and beta of one call, checked before.

    All tensors are in one precision and on one device. What takes a look at all rows is found when first asked for,
    and kept.
    """

    queries: Float[Tensor, "q d"]
    keys: Float[Tensor, "k d"]
    values: Float[Tensor, "k v"]
    mass: Float[Tensor, "k"]
    beta: float
    mask: str | None = None
    """Which keys a query may see, by the name that kernels declare; None for all of them."""

    def __post_init__(self) -> None:
        tensors = {"queries": self.queries, "keys": self.keys, "values": self.values, "mass": self.mass}
        for name, tensor in tensors.items():
            instance(tensor, name, Tensor, "a tensor")
            if tensor.is_nested or tensor.layout != torch.strided or not tensor.dtype.is_floating_point:
                raise InvalidInput(f"{name} must be a dense tensor of floating-point numbers")
        if not (self.queries.ndim == self.keys.ndim == self.values.ndim == 2 and self.mass.ndim == 1):
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors.values())
            raise InvalidInput(f"operands must be three matrices and a row of masses, got shapes {shapes}")
        n_k, d = self.keys.shape
        if self.queries.size(1) != d or not n_k == self.values.size(0) == self.mass.size(0) or n_k == 0 or d == 0:
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors.values())
            raise InvalidInput(f"operands must match, with at least one key, got shapes {shapes}")
        kinds = {(tensor.dtype, tensor.device) for tensor in (self.queries, self.keys, self.values)}
        if len(kinds) > 1 or self.mass.device != self.keys.device:
            raise InvalidInput("operands must be in one precision and on one device, got several")
        object.__setattr__(self, "beta", number(self.beta, "beta", least=0))
        if self.mask is not None:
            instance(self.mask, "mask", str, "a name")

    @classmethod
    def checked_before(cls, queries: Tensor, keys: Tensor, values: Tensor, mass: Tensor, beta: float) -> Operands:
        """Operands without another look at them, for loops over time: a look takes as long as some 20 tokens."""
        made = object.__new__(cls)
        made.__dict__.update(queries=queries, keys=keys, values=values, mass=mass, beta=beta, mask=None)
        return made

    @classmethod
    def known(cls, queries: Tensor, keys: Tensor, mass: Tensor, beta: float, matrix: Tensor) -> Operands:
        """Operands that were checked before; the queries are the keys times a matrix, the values are the keys."""
        made = cls.checked_before(queries, keys, keys, mass, beta)
        made.__dict__["matrix"] = matrix
        return made

    def moved(self, queries: Tensor, keys: Tensor, mass: Tensor) -> Operands:
        """The same tokens a little further on, for whom these are `before`: what was planned here may do there."""
        made = self.checked_before(queries, keys, keys, mass, self.beta)
        made.__dict__.update(matrix=self.matrix, before=self)
        return made

    @cached_property
    def matrix(self) -> Float[Tensor, "d d"] | None:
        """The queries are the keys times it, up to rounding; None where that was not said (`known`)."""
        return None

    @cached_property
    def before(self) -> Operands | None:
        """The operands that these have `moved` from."""
        return None

    @property
    def pairs(self) -> int:
        """n_q n_k."""
        return self.queries.size(0) * self.keys.size(0)

    @property
    def device(self) -> str:
        """The kind of device that the tensors are on."""
        return "cpu" if self.queries.is_cpu else self.queries.device.type

    @cached_property
    def values_are_keys(self) -> bool:
        """Whether the values are the numbers of the keys: the same memory, not only equal."""
        return same_tensor(self.keys, self.values)

    @cached_property
    def squared_queries(self) -> tuple[float, float]:
        """(least, largest) |q_i|^2."""
        return squared_lengths(self.queries)

    @cached_property
    def squared_keys(self) -> tuple[float, float]:
        """(least, largest) |k_j|^2."""
        return squared_lengths(self.keys)

    @property
    def sharpness(self) -> float:
        """beta max|q|: how steep the scores are on the unit sphere of keys."""
        return self.beta * math.sqrt(self.squared_queries[1])

    @cached_property
    def keys_on_sphere(self) -> bool:
        """Whether all keys have unit length to 64 rounding units."""
        least, most = self.squared_keys
        return max(1.0 - least, most - 1.0) <= 128 * torch.finfo(self.keys.dtype).eps

    @cached_property
    def masses(self) -> Masses:
        """Of the keys that have one."""
        if self.mass.is_cpu:
            return Masses(*mass_extremes(self.mass.numpy()))
        mass = self.mass.double()
        found = torch.stack([torch.where(mass > 0, mass, math.inf).min(), mass.max(), mass.sum()])
        return Masses(*found.tolist())

    @property
    def log_mass_ratio(self) -> float:
        """log(max m / min m) of the masses that are not zero."""
        return math.log(self.masses.largest) - math.log(self.masses.least)

    @property
    def log_shares(self) -> Float[Tensor, "k"]:
        """log(m_j / max m), of any masses: a quotient could underflow."""
        m = self.mass.double()
        return (torch.log(m) - torch.log(m.max())).to(self.mass.dtype)

    @property
    def seen(self) -> Operands:
        """Without the keys of mass zero, which nobody sees."""
        return self if self._without_unseen is None else self._without_unseen

    @cached_property
    def _without_unseen(self) -> Operands | None:
        """`seen`, or None where it is all of them: operands that held themselves would outlive their call."""
        if self.mass.is_cpu and mass_range(self.mass.numpy())[0] > 0:
            return None
        kept = self.mass > 0
        if bool(kept.all()):
            return None
        keys = self.keys[kept]
        values = keys if self.values_are_keys else self.values[kept]
        return replace(self, keys=keys, values=values, mass=self.mass[kept])

    @property
    def arrays(self) -> Arrays:
        """The tensors for compiled code on the CPU; views wherever they can be."""
        keys = contiguous(self.keys)
        values = keys if self.values is self.keys else contiguous(self.values)
        return Arrays(contiguous(self.queries), keys, values, contiguous(self.mass))

    @property
    def largest_score(self) -> float:
        """beta max|q| max|k|: no score is larger."""
        return self.beta * math.sqrt(self.squared_queries[1] * self.squared_keys[1])

    def rounding(self, dtype: torch.dtype) -> float:
        """eps (8 + c (L + log(max m / min m)) + 2 |log sum m| + 2 log n), L = beta max|q| max|k|: that of rounding.

        It moves scores, the logarithms of masses, weights, values and log Z; sums over the keys are apart
        (`Kernel.additions`). c = 6 + d/2: in a sum of d products, however ordered, no product is rounded more than
        d + 1 times, by eps/2 at most; twice that where a shift of the size of the scores is one of its terms, which
        is so for d <= 8 only; the rest are beta, the shift, and log Z. Tensor cores truncate: c = 6 + d on CUDA.
        Half precision rounds queries and keys, not their products: c = 3 + sqrt(d) is above that and float32's.
        A mass that is e^-(2L + log n + 5) of the largest or less moves no digit, whatever its logarithm lost.
        """
        if not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise InvalidInput(f"dtype must be one of floating-point numbers, got {shown(dtype)}")
        n_k, d = self.keys.shape
        half = dtype in (torch.bfloat16, torch.float16)
        times = 3 + math.sqrt(d) if half else 6 + (d / 2 if self.queries.is_cpu else d)
        score, log_n = self.largest_score, math.log(n_k)
        exponents = score + min(self.log_mass_ratio, 2 * score + log_n + 5)
        return torch.finfo(dtype).eps * (8 + times * exponents + 2 * (log_n + abs(_log(self.masses.total))))

    def once(self, fact: Callable[..., T], *arguments: Any) -> T:
        """fact(self, *arguments), computed at the first such call: what one room alone wants to know twice."""
        known = (function(fact, "fact"), *arguments)
        if known not in self._facts:
            self._facts[known] = fact(self, *arguments)
        return self._facts[known]

    @cached_property
    def _facts(self) -> dict[Any, Any]:
        return {}

    def of_queries(self, rows: Tensor) -> Operands:
        """The same keys and masses for some of the queries, by their numbers."""
        if not (isinstance(rows, Tensor) and rows.dtype == torch.int64 and rows.ndim == 1):
            raise InvalidInput(f"rows must be a row of integers, got {shown(rows)}")
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(self.queries):
            raise InvalidInput(f"rows must be from 0 to {len(self.queries) - 1}, got {shown(rows.tolist())}")
        return replace(self, queries=self.queries[rows])

    def double(self) -> Operands:
        """The same in float64; values that are the keys stay so."""
        keys = self.keys.double()
        values = keys if self.values_are_keys else self.values.double()
        return Operands(self.queries.double(), keys, values, self.mass.double(), self.beta, self.mask)

    def require_cpu(self, kernel: str) -> None:
        """Refuse tensors that are elsewhere, for a kernel of that name."""
        if not self.queries.is_cpu:
            raise InvalidInput(f'kernel="{kernel}" runs on the CPU, got tensors on {self.queries.device}')


class TokensOfStep:
    """Tokens at the stages of a step, which attend each other by one matrix: what is planned for the stage that
    comes first serves the others.
    """

    def __init__(self, matrix: Float[Tensor, "d d"], beta: float = 1.0) -> None:
        self.matrix, self.beta = matrix, beta
        self.first: Operands | None = None

    def operands(self, queries: Tensor, keys: Tensor, mass: Tensor) -> Operands:
        """Those of a stage, whose queries are the keys times the matrix."""
        if self.first is None:
            self.first = Operands.known(queries, keys, mass, self.beta, self.matrix)
            return self.first
        return self.first.moved(queries, keys, mass)


def _log(total: float) -> float:
    """log of the sum of the masses, 710 where it overflows."""
    return math.log(total) if total < math.inf else 710.0


def same_tensor(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are views of the same numbers in the same order."""
    return a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype


def contiguous(tensor: Tensor) -> np.ndarray:
    """The tensor as a numpy array in C order, without a copy where it is in that order already."""
    return np.ascontiguousarray(tensor.numpy())
