"""`Paper`: a paper whose claims are tested here, and `PAPERS`, all of them by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

from metastable import arguments
from metastable.arguments import choice, sequence, shown
from metastable.errors import InvalidInput
from metastable.papers.claim import Claim

ALL = "all"
"""The name that stands for every paper."""
LISTED = 90
"""Most characters of names that the answer to an unknown one lists, so that it stays a line."""


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
    "perspective": Paper(
        "perspective",
        "A mathematical perspective on transformers",
        "Geshkovski, Letrouit, Polyanskiy, Rigollet",
        "2312.10794",
        "metastable.papers.perspective",
    ),
    "clustering": Paper(
        "clustering",
        "Quantitative clustering in mean-field transformer models",
        "Chen, Lin, Polyanskiy, Rigollet",
        "2504.14697",
        "metastable.papers.clustering",
    ),
    "spectral-selection": Paper(
        "spectral-selection",
        "Spectral selection",
        "Kuehn, Yoon",
        "2604.26085",
        "metastable.papers.spectral_selection",
    ),
    "multihead": Paper(
        "multihead",
        "Gradient Flow Structure and Quantitative Dynamics of Multi-Head Self-Attention",
        "Pendharkar",
        "2605.04279",
        "metastable.papers.multihead",
    ),
    "scheduled-heads": Paper(
        "scheduled-heads",
        "Time-dependent Wasserstein gradient flows",
        "Massucco, Del Grande, Carioni, Brune, Schönlieb",
        "2605.18870",
        "metastable.papers.scheduled_heads",
    ),
    "lost-in-the-middle": Paper(
        "lost-in-the-middle",
        "Kinetic theory, lost in the middle",
        "Duerinckx, Geshkovski, Rossi",
        "2605.09213",
        "metastable.papers.lost_in_the_middle",
    ),
    "common-noise": Paper(
        "common-noise",
        "Stochastic limits, synchronisation by noise",
        "Agazzi, Bruno, Mosig García, Saviozzi, Romito",
        "2604.26898",
        "metastable.papers.common_noise",
    ),
    "chaos": Paper(
        "chaos",
        "Propagation of chaos in contextual flow maps",
        "Chen, Lin, Liu, Rigollet",
        "2605.16747",
        "metastable.papers.chaos",
    ),
}


def papers_of(paper: str) -> tuple[Paper, ...]:
    """The paper of this name, or every paper for "all"."""
    wanted = choice(paper, "paper", (*PAPERS, ALL))
    return tuple(PAPERS.values()) if wanted == ALL else (PAPERS[wanted],)


def claims_of(paper: str | Sequence[Claim], names: Sequence[str] | None = None) -> tuple[Claim, ...]:
    """The claims of a paper or of "all", or those with the given names; a sentence with the valid names for an
    unknown one."""
    known: tuple[Claim, ...]
    if isinstance(paper, str):
        known = tuple(claim for one in papers_of(paper) for claim in one.claims)
    else:
        known = sequence(paper, "paper", Claim, "claims, or the name of a paper")
    titles = [claim.name for claim in known]
    twice = next((name for place, name in enumerate(titles) if name in titles[:place]), None)
    if twice is not None:
        raise InvalidInput(f"two claims are called {twice!r}; a verdict is found by the name of its claim")
    if names is None:
        return known
    wanted = arguments.names(names, "claims")
    for name in wanted:
        if name not in titles:
            raise InvalidInput(f"unknown claim {shown(name)}; {_offered(titles)}")
    return tuple(claim for claim in known if claim.name in wanted)


def _offered(titles: Sequence[str]) -> str:
    """The names to choose from, as far as they fit into a line."""
    listed = ", ".join(titles)
    if len(listed) <= LISTED:
        return f"choose from {listed}"
    return f"choose from {listed[:LISTED].rpartition(', ')[0]}, ... ({len(titles)} in all: verify --list)"
