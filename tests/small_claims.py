"""Claims of the papers in their smallest form, each run once however many tests look at it."""

from functools import cache

from metastable.papers import Setting, Verdict, claims_of, examine


@cache
def small_verdict(name: str, paper: str = "all") -> Verdict:
    """The verdict on a claim in a small run, from seed 0."""
    (claim,) = claims_of(paper, [name])
    return examine(claim, Setting(small=True))
