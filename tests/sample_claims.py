"""Small claims whose experiments can be counted, can be broken, or say how many threads they have."""

import os
import warnings

import numpy as np
import torch

from metastable.drawing import Lines, Series
from metastable.papers import Claim, Outcome, Paper, Setting

FIELDS = {"tolerance": 0.1, "reason": "test", "source": "test"}


def counted(setting: Setting) -> Outcome:
    """Leaves a mark in the folder named by the environment, so that runs can be counted across processes."""
    folder = os.environ["METASTABLE_TEST_MARKS"]
    with open(os.path.join(folder, "marks"), "a") as file:
        file.write("x")
    return Outcome(1.0, curves={"x": np.arange(3.0)}, table=[{"n": np.int64(3)}], note="fine")


def threads(setting: Setting) -> Outcome:
    return Outcome(float(torch.get_num_threads()))


def broken(setting: Setting) -> Outcome:
    raise ZeroDivisionError("one by zero")


def warned(setting: Setting) -> Outcome:
    for _ in range(2):
        warnings.warn("twice\n said", stacklevel=1)
    warnings.warn("said once", RuntimeWarning, stacklevel=1)
    return Outcome(1.0)


def rivalled(setting: Setting) -> Outcome:
    return Outcome(1.0, rivals={"two": (2.0, 0.1), "inf": float("inf")})


def drawn(outcome: Outcome) -> Lines:
    return Lines("t", "x", "y", [Series(outcome.curves["x"], outcome.curves["x"], "a")])


COUNTED = Claim("counted", "It counts.", counted, 1.0, figure=drawn, **FIELDS)
WARNED = Claim("warned", "It warns.", warned, 1.0, **FIELDS)
RIVALLED = Claim(
    "rivalled", "One is one.", rivalled, 1.0, rivals={"two": "It is two.", "inf": "It is not."}, **FIELDS
)
BROKEN = Claim("b", "s", broken, 1.0, effort=0.5, **FIELDS)
GOOD = Claim("good", "One is one.", lambda s: Outcome(1.0, curves={"x": np.ones(1)}), 1.0, figure=drawn, **FIELDS)
BAD = Claim("bad", "One is two.", lambda s: Outcome(1.0), 2.0, **FIELDS)


class SmallPaper(Paper):
    """A paper of two claims, of which one fails."""

    @property
    def claims(self) -> tuple[Claim, ...]:
        return GOOD, BAD


SMALL_PAPER = SmallPaper("concentration", "A paper", "Nobody", "0000.00000", "none")
