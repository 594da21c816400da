"""The assumptions of the concentration theorem in words, and how the concentrated phase of a head ends."""

from __future__ import annotations

from dataclasses import dataclass

from metastable import arguments
from metastable.arguments import OneLine


@dataclass(frozen=True, repr=False)
class Assumption(OneLine):
    """One assumption of the concentration theorem in words, and whether the weights meet it."""

    name: str
    holds: bool
    sentence: str

    def __post_init__(self) -> None:
        arguments.instance(self.name, "name", str, "a text")
        arguments.flag(self.holds, "holds")
        arguments.instance(self.sentence, "sentence", str, "a text")


def phase_sentence(attends: str, *, delta: float | None, stay: bool, narrow: bool, angle: float) -> str:
    """How the concentrated phase ends: what clusters on E attend, Delta (None for 0), whether they rest there and
    are pulled together, and the angle between E and the top of V."""
    antipodal = attends == "antipode"
    if delta is not None:
        return (
            f"Clusters on E look for keys away from {'their antipodes' if antipodal else 'themselves'} "
            f"(Delta = {delta:.3g}): in the mean field the concentrated phase ends at a time proportional "
            "to beta."
        )
    if attends == "neither":
        return (
            "<e, Be> changes sign or vanishes on E: some clusters attend themselves and some their antipodes, "
            "and how the concentrated phase ends is out of range."
        )
    if stay and antipodal:
        return (
            "E is the bottom of V and attends its antipode, where V acts as -V: the concentrated phase does "
            "not end while both antipodes hold tokens."
        )
    if stay:
        return "E is dominant for V too and attends itself: the concentrated phase does not end."
    if not narrow:
        return (
            f"Clusters on E attend {'their antipodes' if antipodal else 'themselves'} and V pushes them apart "
            "there, so that they keep a width: how the concentrated phase ends is out of range."
        )
    if antipodal:
        return (
            "Clusters on E attend their antipodes, where V acts as -V, and E is not where such pairs rest: the "
            "concentrated phase has no plateau and ends at a time proportional to log beta."
        )
    return (
        f"Clusters on E attend themselves but V prefers another space (angle {angle:.3g}): the "
        "concentrated phase has no plateau and ends at a time proportional to log beta."
    )
