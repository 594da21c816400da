"""`Measure`: tokens with masses, an empirical probability measure sum_i m_i delta_{x_i}; validated once, here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import array as read_array
from metastable.arguments import flag, shown
from metastable.errors import InvalidInput


def as_tensor(values: Any, name: str, dtype: torch.dtype | None = None) -> Tensor:
    """Anything that numpy understands as a real floating tensor (float64 unless a dtype is asked for).

    A torch tensor keeps its device; a float32 tensor is promoted to float64 unless `dtype` says otherwise,
    so that single precision is always a decision and never an accident.
    """
    if isinstance(values, Tensor):
        if values.is_complex():
            raise InvalidInput(f"{name} must be real, got complex values")
        if values.is_nested or values.is_meta:
            raise InvalidInput(f"{name} must be a tensor with numbers, got one that is nested or meta")
        values = values if values.layout == torch.strided else values.to_dense()
        moved = values.detach().to(dtype or torch.float64)
        return moved.clone() if moved.data_ptr() == values.data_ptr() else moved  # as for numpy, below
    try:
        array = read_array(values)
        if array.dtype.kind in "SUmM":  # numpy reads a text as the number that it spells
            raise TypeError
        if np.iscomplexobj(array):
            raise InvalidInput(f"{name} must be real, got complex values")
        array = np.array(array, dtype=np.float64)  # a copy: what is validated cannot change behind our back
    except InvalidInput:
        raise
    except Exception as error:  # whatever a stranger's object raises on its way into an array
        raise InvalidInput(f"{name} must be an array of real numbers, got {shown(values)}") from error
    return torch.from_numpy(array).to(dtype or torch.float64)


def check_dtype(dtype: Any) -> None:
    """Refuse a precision other than single and double, and None for what there is."""
    if not (dtype is None or dtype is torch.float32 or dtype is torch.float64):
        raise InvalidInput(f"dtype must be torch.float32 or torch.float64, got {shown(dtype)}")


def on_device(tensor: Tensor, device: Any, dtype: torch.dtype | None = None) -> Tensor:
    """The tensor on that device, or where it is for None, in a precision that was checked; or a sentence."""
    try:
        moved = tensor.to(device=device, dtype=dtype or tensor.dtype)
    except Exception as error:
        reason = shown(str(error).partition("\n")[0])[1:-1]
        raise InvalidInput(f"device {shown(device)} cannot be used: {reason}") from None
    if moved.is_meta:
        raise InvalidInput(f"device {shown(device)} cannot be used: it holds no numbers")
    return moved


@dataclass(frozen=True, eq=False)
class Measure:
    """Empirical measure rho = sum_i m_i delta_{x_i} on the sphere S^{d-1}, sum_i m_i = 1.

    points: (n, d). Rows are normalised; a zero or non-finite row is refused.
    mass:   (n,), non-negative, positive in total; None means equal masses 1/n. Masses are scaled to sum to one;
            `total` keeps the sum that was given, because transport between unequal totals is refused.
    sphere: False for tokens of the Euclidean flow, whose rows are left as they are.
    dtype:  torch.float64 by default; torch.float32 on request.

    >>> rho = Measure([[3.0, 4.0], [0.0, 2.0]], mass=[1, 3])
    >>> rho.points.tolist(), rho.mass.tolist()
    ([[0.6, 0.8], [0.0, 1.0]], [0.25, 0.75])
    """

    points: Float[Tensor, "n d"]
    mass: Float[Tensor, "n"]
    total: float
    sphere: bool

    def __init__(
        self, points: Any, mass: Any = None, *, sphere: bool = True, dtype: torch.dtype | None = None
    ) -> None:
        check_dtype(dtype)
        sphere = flag(sphere, "sphere")
        x = as_tensor(points, "points", dtype)
        if x.ndim != 2:
            raise InvalidInput(f"points must have shape (n, d), got shape {tuple(x.shape)}")
        n, d = x.shape
        if n < 1:
            raise InvalidInput("points must hold at least one token, got none")
        if d < (2 if sphere else 1):
            raise InvalidInput(f"tokens on the sphere S^(d-1) need d >= 2, got d = {d}")
        finite = torch.isfinite(x).all(dim=1)
        if not bool(finite.all()):
            raise InvalidInput(f"points must be finite, got a NaN or infinity in row {int((~finite).nonzero()[0])}")
        if sphere:
            largest = x.abs().amax(dim=1, keepdim=True)
            if bool((largest == 0).any()):
                row = int((largest[:, 0] == 0).nonzero()[0])
                raise InvalidInput(f"points must be non-zero to lie on the sphere, got a zero row {row}")
            # Rows that are of unit length to the last bits stay as they are, so that building a Measure
            # from the points of another one changes nothing. Others are scaled first: their squares may overflow.
            length = torch.linalg.vector_norm(x, dim=1, keepdim=True)
            unit = (length - 1).abs() <= (3 + math.sqrt(d)) * torch.finfo(x.dtype).eps
            scaled = x / largest
            x = torch.where(unit, x, scaled / torch.linalg.vector_norm(scaled, dim=1, keepdim=True))
        object.__setattr__(self, "points", x.contiguous())
        weights, total = _validated_mass(mass, x)
        object.__setattr__(self, "mass", weights)
        object.__setattr__(self, "total", total)
        object.__setattr__(self, "sphere", sphere)

    @property
    def n(self) -> int:
        """Number of tokens."""
        return int(self.points.shape[0])

    @property
    def d(self) -> int:
        """Dimension of the ambient space."""
        return int(self.points.shape[1])

    @property
    def equal_mass(self) -> bool:
        """Whether all tokens carry the same mass."""
        return bool((self.mass == self.mass[0]).all())

    def to(self, *, device: Any = None, dtype: torch.dtype | None = None) -> Measure:
        """The same measure on another device or in another precision."""
        check_dtype(dtype)
        points, mass = on_device(self.points, device), on_device(self.mass, device)
        moved = Measure(points, mass, sphere=self.sphere, dtype=dtype or self.points.dtype)
        object.__setattr__(moved, "total", self.total)
        return moved

    def numpy(self) -> tuple[np.ndarray, np.ndarray]:
        """(points, mass) as numpy arrays."""
        return self.points.cpu().numpy(), self.mass.cpu().numpy()

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[Tensor]:
        """Unpacks as `points, mass = rho`."""
        return iter((self.points, self.mass))

    def __repr__(self) -> str:
        where = f"S^{self.d - 1}" if self.sphere else f"R^{self.d}"
        masses = "equal masses" if self.equal_mass else "masses"
        return f"Measure({self.n} tokens on {where}, {masses}, {self.points.dtype})"


def as_measure(rho: Any, *, sphere: bool = True, dtype: torch.dtype | None = None) -> Measure:
    """A `Measure` as it is; anything else is read as points with equal masses."""
    if isinstance(rho, Measure):
        return rho if dtype is None or rho.points.dtype == dtype else rho.to(dtype=dtype)
    return Measure(rho, sphere=sphere, dtype=dtype)


def _validated_mass(mass: Any, points: Tensor) -> tuple[Tensor, float]:
    n = points.shape[0]
    if mass is None:
        return torch.full((n,), 1.0 / n, dtype=points.dtype, device=points.device), 1.0
    m = as_tensor(mass, "mass", points.dtype).to(points.device)
    if m.shape != (n,):
        raise InvalidInput(f"mass must have shape ({n},) to match points, got shape {tuple(m.shape)}")
    if not bool(torch.isfinite(m).all()):
        raise InvalidInput(
            f"mass must be finite, got a NaN or infinity at index {int((~torch.isfinite(m)).nonzero()[0])}"
        )
    if bool((m < 0).any()):
        index = int((m < 0).nonzero()[0])
        raise InvalidInput(f"mass must be >= 0, got {float(m[index])} at index {index}")
    largest = m.max()
    if largest <= 0:
        raise InvalidInput("mass must be positive in total, got only zeros")
    total = float(m.sum(dtype=torch.float64))
    if not math.isfinite(total):
        return ((m / largest) / (m / largest).sum()).contiguous(), total
    # A mass that sums to one to the last bits stays as it is: resumed and copied runs keep their digits.
    if abs(total - 1) <= n * torch.finfo(m.dtype).eps:
        return m.contiguous(), total
    return (m / total).contiguous(), total
