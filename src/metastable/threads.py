"""Row blocks on all cores: kernels that release the GIL, run by a pool of Python threads.

As many threads as torch uses (`torch.get_num_threads()`, hence OMP_NUM_THREADS), read at every call and never set.
A pool of our own, because numba's threading layers either abort on concurrent callers or do not survive a fork, and
because row blocks without a barrier between them keep their speed on a machine that does other work, too.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch

LEAST_SHARED = 250_000.0
"""Nanoseconds of work below which one thread does it all: to call others takes some tens of microseconds."""
_pools: dict[int, ThreadPoolExecutor] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.clear)


def over_rows(work: Callable[[int, int], None], n: int, *, cost: float, quantum: int = 1) -> None:
    """Run work(start, stop) on consecutive row ranges that cover range(n).

    `cost` is a rough number of nanoseconds for all rows: below LEAST_SHARED one thread does it all.
    Ranges are multiples of `quantum` rows, about four per thread, so that a late thread costs little.
    """
    if n <= quantum or not shared_among_threads(cost):
        work(0, n)
        return
    threads = torch.get_num_threads()
    pieces = max(min(4 * threads, int(cost / 100_000.0), -(-n // quantum)), 2)
    step = -(-n // (pieces * quantum)) * quantum
    pool = _pools.get(threads)
    if pool is None:
        pool = ThreadPoolExecutor(threads, thread_name_prefix="metastable", initializer=_hold_blas)
        pool = _pools.setdefault(threads, pool)
    parts = [pool.submit(work, start, min(start + step, n)) for start in range(0, n, step)]
    try:
        for part in parts:
            part.result()
    except BaseException:
        for part in parts:
            part.cancel()
        wait(parts)  # those that have begun still write into what the caller then takes for its own
        raise


def shared_among_threads(cost: float) -> bool:
    """Whether there are several threads and so many nanoseconds of work pay to hand it to them."""
    return cost >= LEAST_SHARED and torch.get_num_threads() > 1


@cache
def blas_can_be_held() -> bool:
    """Whether a thread of the pool can keep its BLAS calls to itself: torch built on MKL has a switch for that."""
    return _mkl_set_num_threads_local() is not None


@cache
def _mkl_set_num_threads_local() -> Callable[[int], int] | None:
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        switch = ctypes.CDLL(str(library)).MKL_Set_Num_Threads_Local
    except (OSError, AttributeError):
        return None
    switch.argtypes, switch.restype = [ctypes.c_int], ctypes.c_int
    return switch


@contextmanager
def held_blas() -> Iterator[None]:
    """Matrix products of this thread use no other threads inside the `with` block, where that can be asked for.

    Threads of OpenMP wait for each other by spinning: on a machine that does other work a product of a millisecond
    then takes tens of them. The switch is one of the calling thread alone, and is put back.
    """
    switch = _mkl_set_num_threads_local()
    if switch is None:
        yield
        return
    before = switch(1)
    try:
        yield
    finally:
        switch(before)


def _hold_blas() -> None:
    switch = _mkl_set_num_threads_local()
    if switch is not None:
        switch(1)
