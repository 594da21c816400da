"""Random cases of the judge: a claim, an outcome, rivals, and the rule restated with intervals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from metastable.papers import Claim, Outcome, passed


def judged(seed: int) -> str | None:
    """The verdict is that of the interval measured +- 2 se: inside what is allowed, outside of it, or across."""
    rng = np.random.default_rng(seed)
    relation = ("equal", "at most", "at least")[rng.integers(3)]
    expected, tolerance = float(rng.normal()), float(rng.exponential(0.3))
    names = [f"rival-{i}" for i in range(rng.integers(3))]

    def draw() -> tuple[float, float]:
        return expected + float(rng.normal()), float(rng.choice([0.0, rng.exponential(0.2)]))

    measured, rivals = draw(), {name: draw() for name in names}
    waiting = "not known" if rng.random() < 0.2 else ""
    claim = Claim(
        "c", "s.", lambda setting: Outcome(0.0), expected, tolerance, "r", "test",
        relation=relation, rivals=dict.fromkeys(names, "Another."), open=waiting,
    )  # fmt: skip
    verdict = claim.judge(Outcome(measured[0], uncertainty=measured[1], rivals=rivals))
    allowed = {
        "equal": (expected - tolerance, expected + tolerance),
        "at most": (-np.inf, expected + tolerance),
        "at least": (expected - tolerance, np.inf),
    }[relation]
    own = _place(*measured, *allowed)
    others = [_place(*rivals[name], *allowed) for name in names]
    right = "inconclusive" if own == "holds" and any(other != "fails" for other in others) else own
    if verdict.verdict != right or [rival.verdict for rival in verdict.rivals] != others:
        return f"seed {seed}: {verdict.verdict} for {right}, rivals {others}"
    if passed([verdict]) is not (right == "holds" or bool(waiting)):
        return f"seed {seed}: passed {passed([verdict])} for {right}, open {waiting!r}"
    return None


def _place(value: float, error: float, low: float, high: float) -> str:
    first, last = value - 2 * error, value + 2 * error
    if low <= first and last <= high:
        return "holds"
    # Outside by two errors on the side where the value is.
    side = value - 2 * error > high if value - high >= low - value else value + 2 * error < low
    return "fails" if side else "inconclusive"


CASES: dict[str, Callable[[int], str | None]] = {"judge": judged}
