"""`Covariance`: kappa(g) = E[sigma(z_1) sigma(z_2)], what a random layer with activation sigma does to two tokens.

z_1, z_2 are standard normal with correlation g = <x, y>. In normalised Hermite polynomials h_k
    kappa(g) = sum_k a_k^2 g^k,   a_k = E[sigma(z) h_k(z)],   kappa'(1) = E[sigma'(z)^2].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy import special
from torch import Tensor

from metastable.arguments import OneLine, array, choice, function, instance, integer, number, numbers, shown
from metastable.errors import InvalidInput
from metastable.flows.identity import identify
from metastable.measure import as_tensor

NODES = 300
"""Gauss-Hermite nodes for the coefficients a_k: those of tanh, whose poles are nearest, have all digits then
(tests/flows/test_covariance.py)."""
TERMS = 160
"""Coefficients a_k that are kept; what is left of tanh is 1e-17."""
SMOOTH = 1e-8
"""Part of E[sigma^2] that the coefficients of an activation of one's own may leave out: ReLU, with its kink,
leaves 3e-6, and near g = 1 its kappa is not their sum."""
HARMONICS = 24
"""Gegenbauer coefficients whose sign is checked: one that is negative makes kappa no covariance (Schoenberg)."""
ANGLE = 2.0**-7
"""Largest angle of the differences that give kappa'(1) of a function, extrapolated from eight halvings: a part in
1e9 for kappas of activations, with a term |theta|^3, too (tests/flows/test_covariance.py)."""
MOST_CHECKED = 100
"""Largest dimension in which the coefficients are looked at; a covariance of a larger one is one here, too."""
MOST_DEGREE = 16
"""Largest degree of a polynomial kappa."""

Function = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False, repr=False)
class Covariance(OneLine):
    """kappa(g) on [-1, 1], its slope kappa'(1), and the activation sigma or coefficients c_k behind it.

    >>> relu = Covariance.of_activation("relu")
    >>> float(relu(0.0)) == 1 / (2 * math.pi), relu.one, relu.slope
    (True, 0.5, 0.5)
    """

    name: str
    function: Function
    slope: float
    activation: Callable[[Tensor], Tensor] | None = None
    coefficients: tuple[float, ...] | None = None
    """c_k where kappa(g) = sum_k c_k g^k is a polynomial."""
    source: Any = None
    """What identifies a kappa that somebody wrote: the function, or the activation."""

    def __post_init__(self) -> None:
        instance(self.name, "name", str, "a word")
        function(self.function, "function")
        number(self.slope, "slope", least=0.0)
        if self.activation is not None:
            function(self.activation, "activation")
        if self.coefficients is not None:
            numbers(self.coefficients, "coefficients", least=0.0)

    @property
    def one(self) -> float:
        """kappa(1), the strength of the noise on one token."""
        return float(self.function(np.array(1.0)))

    def __call__(self, g: Any) -> Float[np.ndarray, "*shape"]:
        """kappa(g), |g| <= 1."""
        return np.asarray(self.function(overlap(g)))

    @classmethod
    def of_activation(cls, activation: str | Callable[[Tensor], Tensor]) -> Covariance:
        """That of a known activation by name, or of a smooth function of a tensor."""
        if isinstance(activation, str):
            return ACTIVATIONS[choice(activation, "activation", ACTIVATIONS)]()
        return _expanded(function(activation, "activation"))

    @classmethod
    def polynomial(cls, coefficients: Any) -> Covariance:
        """kappa(g) = sum_k c_k g^k with c_k >= 0."""
        row = numbers(coefficients, "coefficients", least=0.0)
        while row and row[-1] == 0:
            row.pop()
        if not row or len(row) > MOST_DEGREE + 1:
            raise InvalidInput(
                f"coefficients must be those of a polynomial of degree 0 to {MOST_DEGREE}, not all zero, got "
                f"{shown(coefficients)}"
            )
        slope = float(np.arange(len(row)) @ row)
        return cls("polynomial", partial(_polynomial, tuple(row)), slope, coefficients=tuple(row))

    @classmethod
    def of_function(cls, kappa: Callable[[np.ndarray], Any]) -> Covariance:
        """A function of g in [-1, 1], on arrays; refused where it is no covariance on the circle."""
        function(kappa, "covariance")
        evaluate = partial(_evaluated, kappa)
        grid = np.cos(np.linspace(0, np.pi, 257))
        values = evaluate(grid)
        if not values[0] > 0 or np.abs(values).max() > values[0] * (1 + 1e-9):
            raise InvalidInput(f"covariance must be positive and largest at g = 1, got {float(values[0]):.6g}")
        slope = _slope_at_one(evaluate)
        if not math.isfinite(slope):
            raise InvalidInput("covariance must have a slope at g = 1, as a noise that is Lipschitz in x has")
        found = cls("function", evaluate, max(slope, 0.0), source=kappa)
        found.require_positive(2)
        return found

    def require_positive(self, d: int) -> None:
        """Refuse a kappa that is no covariance on S^{d-1}: one with a negative Gegenbauer coefficient."""
        if self.source is None or self.coefficients is not None or self.activation is not None:
            return
        d = min(integer(d, "d", least=2), MOST_CHECKED)
        parameter = (d - 2) / 2
        # The nodes of the weight (1 - g^2)^{(d-3)/2}, in which the polynomials of S^{d-1} are orthogonal.
        nodes, weights = special.roots_jacobi(200, parameter - 0.5, parameter - 0.5)
        values = weights * self.function(nodes)
        for k in range(HARMONICS):
            harmonic = special.eval_gegenbauer(k, parameter, nodes) if d > 2 else special.eval_chebyt(k, nodes)
            share = float(values @ harmonic) / math.sqrt(float(weights @ harmonic**2) * float(weights.sum()))
            if share < -1e-9 * self.one:
                raise InvalidInput(
                    f"covariance must be positive semidefinite on S^{d - 1}, got a coefficient {share:.3g} of the "
                    f"harmonics of degree {k}"
                )

    def describe(self) -> dict[str, Any]:
        """Its name, and what tells it from others."""
        if self.coefficients is not None:
            return {"kappa": self.name, "coefficients": list(self.coefficients)}
        return {"kappa": self.name} | ({} if self.source is None else identify(self.source, "covariance"))


def overlap(g: Any) -> Float[np.ndarray, "*shape"]:
    """Numbers in [-1, 1], up to rounding."""
    try:
        values = array(g)
        if values.dtype.kind not in "iuf":
            raise TypeError
        values = values.astype(float)
    except Exception:  # whatever a stranger's object raises on its way into an array
        raise InvalidInput(f"g must be numbers in [-1, 1], got {shown(g)}") from None
    if not (np.abs(values) <= 1 + 1e-12).all():
        raise InvalidInput(f"g must be numbers in [-1, 1], got {shown(g)}")
    return np.clip(values, -1.0, 1.0)


def as_covariance(kappa: Any) -> Covariance:
    """A `Covariance`, the name of an activation, coefficients c_k of sum_k c_k g^k, or a function of g.

    >>> as_covariance([0.0, 1.0]).slope, as_covariance("erf").name
    (1.0, 'erf')
    """
    if isinstance(kappa, Covariance):
        return kappa
    if isinstance(kappa, str):
        return Covariance.of_activation(kappa)
    if callable(kappa):
        return Covariance.of_function(kappa)
    return Covariance.polynomial(kappa)


def _polynomial(coefficients: tuple[float, ...], g: np.ndarray) -> np.ndarray:
    return np.asarray(np.polynomial.polynomial.polyval(g, coefficients))


def _evaluated(kappa: Callable[[np.ndarray], Any], g: np.ndarray) -> np.ndarray:
    """What somebody's function gives, as numbers of the same shape."""
    try:
        values = as_tensor(kappa(g), "covariance(g)").numpy()
    except InvalidInput:
        raise
    except Exception as error:  # whatever a stranger's function raises
        raise InvalidInput(f"covariance must be a function of an array g, got {shown(str(error))}") from None
    if values.shape != g.shape:
        if values.size != 1:
            raise InvalidInput(f"covariance of an array {g.shape} must have its shape, got {values.shape}")
        values = np.broadcast_to(values.reshape(()), g.shape)
    if not np.isfinite(values).all():
        raise InvalidInput("covariance must be finite on [-1, 1], got a NaN or infinity")
    return values


def _slope_at_one(kappa: Function) -> float:
    """lim 2 (kappa(1) - kappa(cos theta))/theta^2, whose error is a series in |theta|: Richardson; inf if none."""
    angles = ANGLE / 2.0 ** np.arange(8)[::-1]
    # 1 - cos theta from the half angle keeps its digits.
    differences = 2 * (kappa(np.array(1.0)) - kappa(1 - 2 * np.sin(angles / 2) ** 2)) / angles**2
    if differences[0] > 4 * max(differences[-1], 0.0) + 1:
        return math.inf
    table = differences[::-1]
    best, spread = float(table[0]), math.inf
    for order in range(1, 5):
        table = table[1:] + (table[1:] - table[:-1]) / (2.0**order - 1)
        change = float(np.abs(np.diff(table[:3])).max())
        if change < spread:
            best, spread = float(table[0]), change
    return best


def _hermite(activation: Callable[[Tensor], Tensor]) -> tuple[np.ndarray, float]:
    """a_k, k < TERMS, and E[sigma^2]."""
    nodes, weights = special.roots_hermitenorm(NODES)
    weights = weights / weights.sum()
    try:
        values = as_tensor(activation(torch.from_numpy(nodes)), "activation(z)").numpy()
    except InvalidInput:
        raise
    except Exception as error:  # whatever a stranger's function raises
        raise InvalidInput(f"activation must be a function of a tensor, got {shown(str(error))}") from None
    if values.shape != nodes.shape or not np.isfinite(values).all():
        raise InvalidInput(f"activation must give finite numbers in the shape of its tensor, got {shown(values)}")
    # h_{k+1} = (z h_k - sqrt(k) h_{k-1})/sqrt(k + 1), times the root of the weight, which keeps it in range.
    root = np.sqrt(weights)
    before, here, found = np.zeros_like(nodes), root.copy(), []
    for k in range(TERMS):
        found.append(float((root * values) @ here))
        before, here = here, (nodes * here - math.sqrt(k) * before) / math.sqrt(k + 1)
    return np.array(found), float(weights @ values**2)


def _expanded(activation: Callable[[Tensor], Tensor], name: str = "activation", known: bool = False) -> Covariance:
    """kappa of a smooth activation by its Hermite coefficients."""
    coefficients, total = _hermite(activation)
    squares = coefficients**2
    if not total > 0:
        raise InvalidInput("activation must not vanish, got one that is zero")
    if abs(total - squares.sum()) > SMOOTH * total:
        raise InvalidInput("activation must be smooth and of moderate growth here; give covariance= instead")
    slope = float(np.arange(TERMS) @ squares)
    # What comes after this place is less than rounding in kappa(1).
    kept = int(np.argmax(np.cumsum(squares) >= squares.sum() * (1 - 1e-16))) + 1
    kappa = partial(_polynomial, tuple(squares[:kept]))
    return Covariance(name, kappa, slope, activation, source=None if known else activation)


def _relu(g: np.ndarray) -> np.ndarray:
    """(sqrt(1 - g^2) + (pi - arccos g) g)/2 pi (Cho and Saul, 2009)."""
    return np.asarray((np.sqrt((1 - g) * (1 + g)) + (math.pi - np.arccos(g)) * g) / (2 * math.pi))


def _gelu(g: np.ndarray) -> np.ndarray:
    """g/4 + (1/sqrt(4 - g^2) + g arcsin(g/2))/2 pi, by Stein's lemma."""
    return np.asarray(g / 4 + (1 / np.sqrt(4 - g**2) + g * np.arcsin(g / 2)) / (2 * math.pi))


def _erf(g: np.ndarray) -> np.ndarray:
    """(2/pi) arcsin(2 g/3) (Williams, 1997)."""
    return np.asarray(2 / math.pi * np.arcsin(2 * g / 3))


def _sine(g: np.ndarray) -> np.ndarray:
    """sinh(g)/e."""
    return np.asarray(np.sinh(g) / math.e)


ACTIVATIONS: dict[str, Callable[[], Covariance]] = {
    "constant": lambda: Covariance("constant", partial(_polynomial, (1.0,)), 0.0, torch.ones_like, (1.0,)),
    "linear": lambda: Covariance("linear", partial(_polynomial, (0.0, 1.0)), 1.0, torch.clone, (0.0, 1.0)),
    "relu": lambda: Covariance("relu", _relu, 0.5, torch.relu),
    "gelu": lambda: Covariance("gelu", _gelu, 1 / 3 + 2 / (3 * math.sqrt(3) * math.pi), torch.nn.functional.gelu),
    "erf": lambda: Covariance("erf", _erf, 4 / (math.pi * math.sqrt(5)), torch.erf),
    "sin": lambda: Covariance("sin", _sine, math.cosh(1) / math.e, torch.sin),
    "tanh": cache(lambda: _expanded(torch.tanh, "tanh", known=True)),
    "sigmoid": cache(lambda: _expanded(torch.sigmoid, "sigmoid", known=True)),
    "silu": cache(lambda: _expanded(torch.nn.functional.silu, "silu", known=True)),
}
"""Activations by name: closed forms where they are known, else Hermite coefficients."""
