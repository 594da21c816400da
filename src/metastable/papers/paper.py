"""`Paper`: a paper whose claims are tested here, and `PAPERS`, all of them by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

from metastable.errors import InvalidInput
from metastable.papers.claim import Claim


@dataclass(frozen=True)
class Paper:
    """A paper whose claims are tested: how it is called here, its title, authors and arXiv number."""

    name: str
    title: str
    authors: str
    arxiv: str
    module: str

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Its claims, in the order in which they are reported."""
        return tuple(import_module(self.module).CLAIMS)


PAPERS: dict[str, Paper] = {
    "concentration": Paper(
        "concentration",
        "Concentration in the low-temperature regime",
        "Alcalde, Bungert, Riedl, Roith",
        "2605.10931",
        "metastable.papers.concentration",
    ),
}


def claims_of(paper: str | Sequence[Claim], names: Sequence[str] | None = None) -> tuple[Claim, ...]:
    """The claims of a paper, or those with the given names; a sentence with the valid names for an unknown one."""
    if isinstance(paper, str):
        if paper not in PAPERS:
            raise InvalidInput(f"unknown paper {paper!r}; choose from {', '.join(PAPERS)}")
        known = PAPERS[paper].claims
    else:
        known = tuple(paper)
    if names is None:
        return known
    titles = {claim.name for claim in known}
    for name in names:
        if name not in titles:
            raise InvalidInput(f"unknown claim {name!r}; choose from {', '.join(claim.name for claim in known)}")
    return tuple(claim for claim in known if claim.name in set(names))
