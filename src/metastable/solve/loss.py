"""`Loss`: a function of the last tokens, checked, with its derivative by torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import function, shown
from metastable.errors import InvalidInput, SolveError


class Loss:
    """L = loss(points (n, d)), a number made of the points by torch operations.

    It is tried on the first tokens, so that a mistake shows before the run and not after it.
    """

    def __init__(self, loss: Callable[[Tensor], Any], start: Float[Tensor, "n d"]) -> None:
        self.loss = function(loss, "loss")
        self._value(start.clone().requires_grad_())

    def at(self, points: Float[Tensor, "n d"]) -> tuple[float, Float[Tensor, "n d"]]:
        """L and dL/dpoints."""
        x = points.clone().requires_grad_()
        value = self._value(x)
        number = float(value.detach())
        if not math.isfinite(number):
            raise SolveError(f"the loss of the last tokens must be finite, got {number}")
        (found,) = torch.autograd.grad(value, x, allow_unused=True)
        if found is None:
            raise _independent()
        if not bool(torch.isfinite(found).all()):
            raise SolveError("the derivative of the loss at the last tokens must be finite, got a NaN or infinity")
        return number, found

    def _value(self, x: Tensor) -> Tensor:
        try:
            with torch.enable_grad():
                value = self.loss(x)
        except Exception as error:
            # What a function raises inside is its own business; that it cannot be called so is ours.
            if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
                raise
            raise InvalidInput(f"loss must take the points (n, d), got {shown(self.loss)}") from error
        if not (isinstance(value, Tensor) and value.numel() == 1 and value.dtype.is_floating_point):
            raise InvalidInput(f"loss must return one number, a tensor made of the points, got {shown(value)}")
        if not value.requires_grad:
            raise _independent()
        return value.reshape(())


def _independent() -> InvalidInput:
    return InvalidInput("loss must depend on the points by torch operations; this one does not")
