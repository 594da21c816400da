"""Attention and dynamics: what sampled queries attend to, and how well a Gaussian cloud forecasts it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from metastable.monitor.channels.channel import Evidence
from metastable.monitor.deviation import Deviation
from metastable.monitor.trace import Trace

ATTENTION, DYNAMICS = 0, 1


@dataclass(frozen=True, eq=False)
class Looked:
    """Deviation of the features of sampled queries; kind: ATTENTION (entropy, sink) or DYNAMICS (forecast)."""

    deviation: Deviation
    kind: int
    places: tuple[int, ...]
    """The layers that were looked at, in the order of the features."""

    def evidence(self, trace: Trace) -> Evidence:
        """How unusual attention or its forecast is, and in which layer."""
        values, shares = self.deviation(_features(trace, self.kind), trace.lengths)
        by_layer = shares.reshape(len(shares), len(self.places), -1).sum(axis=2)
        return Evidence(values, np.asarray(self.places)[by_layer.argmax(axis=1)])


class LookedLearner:
    """Collects the features of every text, of both kinds."""

    def __init__(self, places: tuple[int, ...]) -> None:
        self.places = places
        self.rows: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        self.lengths: list[np.ndarray] = []

    def add(self, trace: Trace) -> None:
        """Learn from one more trace."""
        for kind in (ATTENTION, DYNAMICS):
            self.rows[kind].append(_features(trace, kind))
        self.lengths.append(trace.lengths)

    def finish(self) -> tuple[Looked, Looked]:
        """Both channels."""
        lengths = np.concatenate(self.lengths)
        made = [Looked(Deviation.fit(np.concatenate(self.rows[k]), lengths), k, self.places) for k in (0, 1)]
        return made[0], made[1]


def _features(trace: Trace, kind: int) -> Float[np.ndarray, "b f"]:
    assert trace.glances is not None
    return trace.glances[kind]
