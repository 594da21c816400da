"""Small claims whose experiments can be counted, can be broken, or say how many threads they have."""

import os

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


def drawn(outcome: Outcome) -> Lines:
    return Lines("t", "x", "y", [Series(outcome.curves["x"], outcome.curves["x"], "a")])


COUNTED = Claim("counted", "It counts.", counted, 1.0, figure=drawn, **FIELDS)
BROKEN = Claim("b", "s", broken, 1.0, effort=0.5, **FIELDS)
GOOD = Claim("good", "One is one.", lambda s: Outcome(1.0, curves={"x": np.ones(1)}), 1.0, figure=drawn, **FIELDS)
BAD = Claim("bad", "One is two.", lambda s: Outcome(1.0), 2.0, **FIELDS)


class SmallPaper(Paper):
    """A paper of two claims, of which one fails."""

    @property
    def claims(self) -> tuple[Claim, ...]:
        return GOOD, BAD


SMALL_PAPER = SmallPaper("concentration", "A paper", "Nobody", "0000.00000", "none")
