"""`verify`: run the claims of a paper, in parallel and resumably, and judge them."""

from __future__ import annotations

import os
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path as FilePath

import numba
import torch

from metastable.arguments import flag, instance, integer, place, shown
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.paper import claims_of
from metastable.papers.processes import in_processes
from metastable.papers.progress import progress_bar
from metastable.papers.store import ClaimStore, claim_key
from metastable.papers.verdict import Verdict


def verify(
    paper: str | Sequence[Claim] = "concentration",
    quick: bool = False,
    out: str | os.PathLike[str] | None = None,
    claims: Sequence[str] | None = None,
    jobs: int = 2,
    progress: bool = False,
    seed: int = 0,
) -> list[Verdict]:
    """Test the claims of a paper by experiment; one `Verdict` per claim, in the paper's order.

    paper: its name (see `PAPERS`), or claims of your own. quick: small experiments, a minute or two on two
    cores. claims: names of the claims to run; None runs all. jobs: processes, each with one thread; 1 stays in this
    process, and so does a single claim, with so many threads. out: a folder; finished claims are kept in out/claims
    and are not computed again while version, code, quick and seed are the same. A claim whose experiment raises is
    "inconclusive" and says why; what an experiment is warned of is in its verdict.

    >>> from metastable.papers import Claim, Outcome
    >>> claim = Claim("pi", "pi is 3.", lambda setting: Outcome(3.14159), 3.0, 0.2, "rounding", "1 Kings 7:23")
    >>> [v.verdict for v in verify([claim], jobs=1)]
    ['holds']
    """
    chosen = claims_of(paper, claims)
    finished = {}
    flag(progress, "progress")
    with progress_bar(progress, len(chosen)) as advance:
        for verdict in verdicts(paper, quick=quick, out=out, claims=claims, jobs=jobs, seed=seed):
            finished[verdict.claim] = verdict
            advance(verdict)
    return [finished[claim.name] for claim in chosen]


def verdicts(
    paper: str | Sequence[Claim] = "concentration",
    *,
    quick: bool = False,
    out: str | os.PathLike[str] | None = None,
    claims: Sequence[str] | None = None,
    jobs: int = 2,
    seed: int = 0,
) -> Iterator[Verdict]:
    """The verdicts of `verify` as they come in: stored ones first, then each as soon as it is finished."""
    chosen = claims_of(paper, claims)
    integer(jobs, "jobs", least=1)
    setting = Setting(quick=quick, seed=seed)
    folder = None if out is None else FilePath(place(out, "out")) / "claims"
    return _verdicts(chosen, setting, folder, jobs)


def examine(claim: Claim, setting: Setting | None = None) -> Verdict:
    """One claim, run in this process and judged.

    >>> claim = Claim("pi", "pi is 3.", lambda setting: Outcome(3.14159), 3.0, 0.2, "rounding", "1 Kings 7:23")
    >>> examine(claim).holds
    True
    """
    instance(claim, "claim", Claim, "a Claim")
    used = Setting() if setting is None else instance(setting, "setting", Setting, "a Setting")
    _, outcome, seconds = _run(claim, used, None)
    return claim.judge(outcome, seconds, used)


def _verdicts(claims: Sequence[Claim], setting: Setting, folder: FilePath | None, jobs: int) -> Iterator[Verdict]:
    store = None if folder is None else ClaimStore(folder)
    waiting: list[Claim] = []
    for claim in claims:
        known = store.read(claim, setting) if store is not None else None
        if known is None:
            waiting.append(claim)
        else:
            yield replace(claim.judge(*known, setting=setting), resumed=True)
    waiting.sort(key=lambda claim: -claim.effort)  # long ones first, so that no process idles at the end
    by_name = {claim.name: claim for claim in waiting}
    for name, outcome, seconds in _outcomes(waiting, setting, folder, jobs):
        yield by_name[name].judge(outcome, seconds, setting)


def _outcomes(
    claims: Sequence[Claim], setting: Setting, folder: FilePath | None, jobs: int
) -> Iterator[tuple[str, Outcome, float]]:
    if jobs == 1 or len(claims) <= 1:
        for claim in claims:
            yield _run(claim, setting, folder, threads=jobs)
        return
    yield from in_processes(_run, [(claim, setting, folder) for claim in claims], jobs)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """At most so many threads for torch and numba inside the block.

    One where claims are what runs in parallel, whose arrays are small; all that were asked for where one is alone.
    """
    before = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(min(count, before[0]))
    numba.set_num_threads(min(count, before[1]))
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        numba.set_num_threads(before[1])


def _run(claim: Claim, setting: Setting, folder: FilePath | None, threads: int = 1) -> tuple[str, Outcome, float]:
    begin = time.perf_counter()
    key = claim_key(claim, setting)  # before the experiment: it describes the code that runs
    with warnings.catch_warnings(record=True) as caught, _threads(threads):
        warnings.simplefilter("always")
        try:
            outcome = claim.experiment(setting)
            if not isinstance(outcome, Outcome):
                raise TypeError(f"it gave {shown(outcome)}, not an Outcome")
        except Exception as error:
            sentence = f"the experiment stopped: {type(error).__name__}: {error}"
            outcome = Outcome(float("nan"), inconclusive=sentence, stopped=True)
    seconds = time.perf_counter() - begin
    outcome = replace(outcome, warnings=(*outcome.warnings, *_sentences(caught)))
    if outcome.stopped:
        return claim.name, outcome, seconds
    if folder is not None:
        ClaimStore(folder).write(claim, setting, outcome, seconds, key)
    return claim.name, outcome, seconds


def _sentences(caught: Sequence[warnings.WarningMessage]) -> list[str]:
    """Each warning once, in a line, and how often it came."""
    counts = Counter(f"{one.category.__name__}: {' '.join(str(one.message).split())}" for one in caught)
    return [sentence if times == 1 else f"{sentence} ({times} times)" for sentence, times in counts.items()]
