"""The pool of row blocks: every row once, the same numbers for any number of threads, errors reach the caller."""

import time

import pytest
import torch

import metastable as ms
from metastable.threads import _mkl_set_num_threads_local, held_blas, over_rows


@pytest.fixture(params=[1, 2, 5])
def threads(request, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: request.param)
    return request.param


@pytest.mark.parametrize(("n", "quantum"), [(1, 1), (7, 16), (1000, 64), (4097, 1)])
def test_every_row_is_done_once(threads, n, quantum):
    done = torch.zeros(n)

    def work(start, stop):
        done[start:stop] += 1

    over_rows(work, n, cost=1e7, quantum=quantum)
    assert (done == 1).all()


def test_an_error_in_a_block_reaches_the_caller(threads):
    def work(start, stop):
        if stop == 1000:
            raise ValueError("row 999")

    with pytest.raises(ValueError, match="row 999"):
        over_rows(work, 1000, cost=1e7)


def test_an_error_waits_for_blocks_that_have_begun_and_begins_no_other(threads):
    begun, done = [], []

    def work(start, stop):
        begun.append(start)
        if start == 0:
            raise ValueError("row 0")
        time.sleep(0.1)
        done.append(start)

    with pytest.raises(ValueError, match="row 0"):
        over_rows(work, 1000, cost=1e7)
    begun = list(begun)
    assert sorted(done) == sorted(begun)[1:]
    time.sleep(0.2)
    assert sorted(done) == sorted(begun)[1:] and len(begun) < 4 * threads


@pytest.mark.parametrize("kernel", ["fused", "blocks", "auto"])
def test_attention_does_not_depend_on_the_number_of_threads(threads, kernel, monkeypatch):
    x = ms.sphere.uniform(3000, 3, seed=0)
    found = ms.attend(x, x, beta=20.0, kernel=kernel)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    alone = ms.attend(x, x, beta=20.0, kernel=kernel)
    assert (found.mean - alone.mean).abs().max() <= 1e-14


def test_products_are_held_in_this_thread_alone_and_let_go():
    """MKL's switch of the calling thread returns what it was."""
    switch = _mkl_set_num_threads_local()
    if switch is None:
        pytest.skip("torch is not built on MKL")
    a = torch.randn(200, 200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = a @ a
    before = switch(1)
    switch(before)
    with held_blas():
        assert switch(1) == 1
        assert torch.allclose(a @ a, expected, rtol=0, atol=1e-12)
    assert switch(before) == before
    with pytest.raises(KeyError), held_blas():
        raise KeyError
    assert switch(before) == before
