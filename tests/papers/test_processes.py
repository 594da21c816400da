import os

from metastable.papers.processes import in_processes


def whose(number: int) -> tuple[int, int]:
    return number, os.getpid()


def test_calls_are_made_elsewhere_once_each_by_processes_that_stay() -> None:
    first, second = (dict(in_processes(whose, [(i,) for i in range(n)], jobs=2)) for n in (6, 3))
    assert sorted(first) == list(range(6)) and sorted(second) == list(range(3))
    assert os.getpid() not in first.values() and set(second.values()) <= set(first.values())


def test_one_job_and_one_call_stay_here() -> None:
    for calls, jobs in (([(1,), (2,)], 1), ([(1,)], 2)):
        assert {pid for _, pid in in_processes(whose, calls, jobs)} == {os.getpid()}
