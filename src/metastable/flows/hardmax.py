"""Hardmax attention: x' = P_x V y*(x), every token looks at its best key (beta -> infinity at fixed n)."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any, ClassVar, Self

from jaxtyping import Float
from torch import Tensor

from metastable.arguments import choice
from metastable.attention.hardmax.choose import hardmax_unchecked
from metastable.flows.drift import Drift
from metastable.flows.flow import WeightedFlow
from metastable.flows.plan import Plan
from metastable.weights import AttentionWeights, Schedule

NOTED = ("smooth", "fixed", "located", "sliding", "crowded")
"""What a run of hardmax writes down."""


class Hardmax(WeightedFlow):
    """x_i' = P_{x_i} V y_i,   y_i = mass-weighted mean of all x_j that maximise <x_i, B x_j>.

    Ties: scores that agree with the maximum to a few rounding units share the attention in proportion to their
    masses, which is the limit of softmax. The field jumps where the best key changes, and tokens can slide along
    such a jump for ever. `solve` locates the switches by default (method "switching"); methods that step across
    them have an error of the order of their step, whatever rtol and atol are. `path.provenance["accuracy"]` says
    which it was. Source: [arXiv:2508.09628].
    """

    smooth = False
    caches: ClassVar[tuple[str, ...]] = (*WeightedFlow.caches, "_noted")

    _noted: Counter[str]

    def __init__(self, weights: AttentionWeights | Schedule) -> None:
        super().__init__(weights)
        self._noted = Counter()

    def for_run(self, plan: Plan) -> Self:
        """The flow with an empty record of switches."""
        prepared = super().for_run(plan)
        if prepared is self and not self._foreign:
            prepared = copy.copy(self)
        prepared._noted = Counter()
        return prepared

    def note(self, what: str) -> None:
        """Write down a step between switches ("smooth") or across them ("fixed"), or a switch.

        A switch is "located", or "sliding" when tokens slid along a jump, and besides "crowded" when it followed
        the one before too closely.
        """
        self._noted[choice(what, "what to note", NOTED)] += 1

    def record(self) -> dict[str, Any]:
        """How the jumps of the field were treated, in a sentence."""
        noted = self._noted
        if noted["fixed"] or not noted["smooth"]:
            said = "steps across the jumps of the field: the error is of the order of the step, not of rtol"
            return {"accuracy": said}
        said = f"{noted['located'] + noted['sliding']} switches of keys, located"
        if noted["sliding"]:
            said += f", {noted['sliding']} of them while tokens slid along a jump (Filippov's solution)"
        if noted["crowded"]:
            said += f", {noted['crowded']} so close to the one before that they were passed together"
        return {"accuracy": said}

    def drift(self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Drift:
        """V y_i before the projection."""
        w = self.weights_at(t, points)
        mean, _ = hardmax_unchecked(w.queries(points), w.keys(points), w.values(points), mass)
        return Drift(mean, lambda: 2 * self.weights_at(t).V_norm, w.after_average)
