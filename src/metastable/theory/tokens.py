"""Tokens, weights and times as the theory reads them, each refused in one sentence where it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metastable.arguments import instance, number, numbers, shape, shown
from metastable.errors import InvalidInput, MetastableError
from metastable.measure import Measure, as_measure, as_tensor
from metastable.weights import AttentionWeights


def tokens(points: Any, d: int) -> Measure:
    """A Measure or points as a float64 Measure on S^{d-1}; refused when their dimension is not d.

    Formulas are evaluated in double precision whatever the tokens come in: eigenvectors and clocks are in float64.

    >>> tokens([[3.0, 4.0]], 2).points.tolist()
    [[0.6, 0.8]]
    """
    rho = as_measure(points, dtype=torch.float64)
    if not rho.sphere:
        raise InvalidInput("the theory is one of tokens on the sphere, got a Measure with sphere=False")
    check_dimension(rho.d, d)
    return rho


def check_dimension(got: int, d: int) -> None:
    """Refuse points of another dimension than the weights."""
    if got != d:
        raise InvalidInput(f"points have dimension {got} but the weights have dimension {d}")


def check_weights(w: Any) -> AttentionWeights:
    """Refuse what is not a head."""
    return instance(w, "w", AttentionWeights, "AttentionWeights")


def answer(function: Callable[[Any], Any], argument: Any, name: str) -> Tensor:
    """What a function of the caller gives for an argument, as a tensor; what it raises becomes one sentence."""
    try:
        given = function(argument)
    except MetastableError:
        raise
    except Exception as error:
        raise InvalidInput(f"{name} failed with {type(error).__name__}: {shown(str(error))}") from error
    return as_tensor(given, f"what {name} gives")


def read_times(t: Any, name: str = "t") -> np.ndarray:
    """A time >= 0 as an array without dimensions, or a row of times >= 0.

    >>> read_times(2), read_times([0.0, 1.5])
    (array(2.), array([0. , 1.5]))
    """
    if isinstance(t, list | tuple | range | np.ndarray | torch.Tensor) and shape(t) != ():
        return np.array(numbers(t, name, least=0.0))
    return np.array(number(t, name, least=0.0))
