"""`in_processes`: calls spread over processes that stay for the next ones, which load their libraries once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any


def in_processes(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], jobs: int) -> Iterator[Any]:
    """What the calls return, as soon as each has; with several jobs they begin now and not when they are asked for.

    One job, or a single call, stays in this process. Each process has one thread.

    >>> sorted(in_processes(pow, [(2, 3), (3, 2)], jobs=1))
    [8, 9]
    """
    if jobs == 1 or len(calls) <= 1:
        return (function(*call) for call in calls)
    import joblib

    # Alike for all who call: joblib keeps its processes for the next calls while this is the same.
    with joblib.parallel_config("loky", n_jobs=min(jobs, len(calls)), inner_max_num_threads=1):
        run = joblib.Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch="all")
        return iter(run(joblib.delayed(function)(*call) for call in calls))
