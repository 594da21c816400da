"""`Measure`: tokens with masses, an empirical measure sum_i m_i delta_{x_i}, and `Ensemble`: many of one size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import array as read_array
from metastable.arguments import flag, integer, shown
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
            many = "; b systems (b, n, d) are an Ensemble" if x.ndim == 3 else ""
            raise InvalidInput(f"points must have shape (n, d), got shape {tuple(x.shape)}{many}")
        if len(x) < 1:
            raise InvalidInput("points must hold at least one token, got none")
        x = _validated_points(x, sphere)
        object.__setattr__(self, "points", x.contiguous())
        weights, total = _validated_mass(mass, x)
        object.__setattr__(self, "mass", weights)
        object.__setattr__(self, "total", float(total))
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


@dataclass(frozen=True, eq=False)
class Ensemble:
    """b independent systems of n tokens each: measures rho_s = sum_i m_si delta_{x_si}, s = 0 .. b - 1.

    points: (b, n, d), or a sequence of b `Measure`s of one size. Rows are normalised; a zero or non-finite row is
            refused. mass: (b, n), or (n,) for the same masses in every system; None means equal masses 1/n. Masses
            are scaled to sum to one in every system. sphere and dtype: as for a `Measure`.

    `many[s]` is system number s as a `Measure`, `many[2:5]` a smaller Ensemble, `len(many)` is b. Systems do not
    see each other: a flow moves each of them as if it were alone.

    >>> many = Ensemble([[[3.0, 4.0], [0.0, 2.0]], [[1.0, 0.0], [0.0, 1.0]]], mass=[1, 3])
    >>> many
    Ensemble(2 systems of 2 tokens on S^1, masses, torch.float64)
    >>> many[1]
    Measure(2 tokens on S^1, masses, torch.float64)
    """

    points: Float[Tensor, "b n d"]
    mass: Float[Tensor, "b n"]
    sphere: bool

    def __init__(
        self, points: Any, mass: Any = None, *, sphere: bool = True, dtype: torch.dtype | None = None
    ) -> None:
        check_dtype(dtype)
        sphere = flag(sphere, "sphere")
        if isinstance(points, list | tuple):
            _one_size(points)
            if points and all(isinstance(rho, Measure) for rho in points):
                if mass is not None:
                    raise InvalidInput(f"mass must be None where Measures bring theirs, got {shown(mass)}")
                mass = torch.stack([rho.mass.to(torch.float64) for rho in points])
                points = torch.stack([rho.points.to(torch.float64) for rho in points])
        x = as_tensor(points, "points", dtype)
        if x.ndim != 3:
            raise InvalidInput(f"points of an Ensemble must have shape (b, n, d), got shape {tuple(x.shape)}")
        b, n = x.shape[:2]
        if b < 1 or n < 1:
            raise InvalidInput(f"an Ensemble needs a system and every system a token, got {b} systems of {n}")
        x = _validated_points(x, sphere)
        object.__setattr__(self, "points", x.contiguous())
        object.__setattr__(self, "mass", _validated_mass(mass, x)[0])
        object.__setattr__(self, "sphere", sphere)

    @property
    def b(self) -> int:
        """Number of systems."""
        return int(self.points.shape[0])

    @property
    def n(self) -> int:
        """Number of tokens of every system."""
        return int(self.points.shape[1])

    @property
    def d(self) -> int:
        """Dimension of the ambient space."""
        return int(self.points.shape[2])

    @property
    def shape(self) -> tuple[int, int, int]:
        """(b, n, d)."""
        return self.b, self.n, self.d

    @property
    def equal_mass(self) -> bool:
        """Whether all tokens of all systems carry the same mass."""
        return bool((self.mass == self.mass[0, 0]).all())

    def to(self, *, device: Any = None, dtype: torch.dtype | None = None) -> Ensemble:
        """The same systems on another device or in another precision."""
        check_dtype(dtype)
        points, mass = on_device(self.points, device), on_device(self.mass, device)
        return Ensemble(points, mass, sphere=self.sphere, dtype=dtype or self.points.dtype)

    def numpy(self) -> tuple[np.ndarray, np.ndarray]:
        """(points, mass) as numpy arrays."""
        return self.points.cpu().numpy(), self.mass.cpu().numpy()

    def __len__(self) -> int:
        return self.b

    @overload
    def __getitem__(self, index: int) -> Measure: ...

    @overload
    def __getitem__(self, index: slice) -> Ensemble: ...

    def __getitem__(self, index: int | slice) -> Measure | Ensemble:
        """One system, or those of a slice."""
        options: dict[str, Any] = {"sphere": self.sphere, "dtype": self.points.dtype}
        if isinstance(index, slice):
            try:
                return Ensemble(self.points[index], self.mass[index], **options)
            except (TypeError, ValueError, IndexError, InvalidInput):
                raise InvalidInput(
                    f"a slice of an Ensemble must be of whole numbers, with a system in it, got {shown(index)}"
                ) from None
        number = integer(index, "index")
        if not -self.b <= number < self.b:
            raise InvalidInput(f"the Ensemble has {self.b} systems, got index {shown(number)}")
        return Measure(self.points[number], self.mass[number], **options)

    def __iter__(self) -> Iterator[Measure]:
        """The systems one by one."""
        return (self[index] for index in range(self.b))

    def __repr__(self) -> str:
        where = f"S^{self.d - 1}" if self.sphere else f"R^{self.d}"
        masses = "equal masses" if self.equal_mass else "masses"
        return f"Ensemble({self.b} systems of {self.n} tokens on {where}, {masses}, {self.points.dtype})"


def as_measure(rho: Any, *, sphere: bool = True, dtype: torch.dtype | None = None) -> Measure:
    """A `Measure` as it is; anything else is read as points with equal masses."""
    if isinstance(rho, Ensemble):
        raise InvalidInput("one measure is needed here, got an Ensemble; take one of its systems, many[s]")
    if isinstance(rho, Measure):
        return rho if dtype is None or rho.points.dtype == dtype else rho.to(dtype=dtype)
    return Measure(rho, sphere=sphere, dtype=dtype)


def _one_size(systems: Sequence[Any]) -> None:
    """Refuse systems of unequal sizes, which no array holds."""
    sizes = []
    for system in systems:
        try:
            sizes.append(len(system))
        except Exception:
            return
    if len(set(sizes)) > 1:
        raise InvalidInput(f"the systems of an Ensemble must have one number of tokens, got {shown(sizes)}")


def _validated_points(x: Float[Tensor, "*b n d"], sphere: bool) -> Float[Tensor, "*b n d"]:
    """Tokens on the sphere, or finite ones in space."""
    if x.shape[-1] < (2 if sphere else 1):
        raise InvalidInput(f"tokens on the sphere S^(d-1) need d >= 2, got d = {x.shape[-1]}")
    return _on_the_sphere(x) if sphere else _finite(x)


def _on_the_sphere(x: Tensor) -> Tensor:
    """Rows of length one; a zero row or one that is not finite is refused by its number, and that of its system."""
    # Rows that are of unit length to the last bits stay as they are, so that building a Measure
    # from the points of another one changes nothing. Others are scaled first: their squares may overflow.
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    unit = (length - 1).abs() <= (3 + math.sqrt(x.shape[-1])) * torch.finfo(x.dtype).eps
    if bool(unit.all()):
        return x
    largest = _finite(x).abs().amax(dim=-1, keepdim=True)
    if bool((largest == 0).any()):
        raise InvalidInput(
            f"points must be non-zero to lie on the sphere, got a zero {_first(largest[..., 0] == 0)}"
        )
    scaled = x / largest
    return torch.where(unit, x, scaled / torch.linalg.vector_norm(scaled, dim=-1, keepdim=True))


def _finite(x: Tensor) -> Tensor:
    finite = torch.isfinite(x).all(dim=-1)
    if not bool(finite.all()):
        raise InvalidInput(f"points must be finite, got a NaN or infinity in {_first(~finite)}")
    return x


def _first(wrong: Tensor, name: str = "row") -> str:
    """The first place that is wrong, in words: of one system (n,), or of many (b, n)."""
    *system, row = wrong.nonzero()[0].tolist()
    return f"{name} {row}" + "".join(f" of system {s}" for s in system)


def _validated_mass(mass: Any, points: Tensor) -> tuple[Tensor, Tensor]:
    """Masses (..., n) of points (..., n, d) that sum to one in every system, and the sums (...) that were given."""
    shape = tuple(points.shape[:-1])
    if mass is None:
        equal = torch.full(shape, 1.0 / shape[-1], dtype=points.dtype, device=points.device)
        return equal, torch.ones(shape[:-1], dtype=torch.float64, device=points.device)
    m = as_tensor(mass, "mass", points.dtype).to(points.device)
    if m.shape == shape[-1:]:
        m = m.expand(shape)
    if m.shape != shape:
        expected = f"{shape} or {shape[-1:]}" if len(shape) > 1 else f"{shape}"
        raise InvalidInput(f"mass must have shape {expected} to match points, got shape {tuple(m.shape)}")
    if not bool(torch.isfinite(m).all()):
        raise InvalidInput(f"mass must be finite, got a NaN or infinity at {_first(~torch.isfinite(m), 'index')}")
    if bool((m < 0).any()):
        raise InvalidInput(f"mass must be >= 0, got {float(m[m < 0][0])} at {_first(m < 0, 'index')}")
    largest = m.amax(dim=-1, keepdim=True)
    if bool((largest <= 0).any()):
        where = f" in system {int((largest[..., 0] <= 0).nonzero()[0])}" if len(shape) > 1 else ""
        raise InvalidInput(f"mass must be positive in total, got only zeros{where}")
    total = m.sum(dim=-1, keepdim=True, dtype=torch.float64)
    # A mass that sums to one to the last bits stays as it is: resumed and copied runs keep their digits. One whose
    # sum overflows is scaled first.
    whole = (total - 1).abs() <= shape[-1] * torch.finfo(m.dtype).eps
    scaled = torch.where(torch.isfinite(total), m, m / largest)
    shares = torch.where(whole, m, scaled / scaled.sum(dim=-1, keepdim=True, dtype=torch.float64).to(m.dtype))
    return shares.contiguous(), total[..., 0]
