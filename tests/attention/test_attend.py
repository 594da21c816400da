"""`attend` itself: what it accepts and refuses, precisions, and tolerances that float32 does not meet."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attention.attention_reference import tokens
from fuzz.attention import CASES
from metastable import sphere
from metastable.attention import attend
from metastable.errors import InvalidInput


def test_mixed_precision_is_promoted():
    x = tokens(20, 3, "uniform", 0)
    assert attend(x.float(), x).mean.dtype == torch.float64


def test_nothing_global_changes():
    before = torch.get_num_threads(), torch.get_default_dtype(), torch.get_rng_state().clone()
    x = tokens(3000, 30, "uniform", 0)
    attend(x, x, kernel="blocks")
    attend(x[:, :3], x[:, :3], kernel="fused")
    assert before[:2] == (torch.get_num_threads(), torch.get_default_dtype())
    assert torch.equal(before[2], torch.get_rng_state())


X = [[1.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"queries": [1.0, 0.0], "keys": X}, "must be matrices"),
        ({"queries": [[1.0, 0.0, 0.0]], "keys": X}, "one dimension"),
        ({"queries": X, "keys": X, "values": [[1.0]]}, "do not match"),
        ({"queries": X, "keys": np.zeros((0, 2))}, "at least one key"),
        ({"queries": [[np.nan, 0.0]], "keys": X}, "finite"),
        ({"queries": X, "keys": [[np.inf, 0.0], [0.0, 1.0]]}, "finite"),
        ({"queries": X, "keys": X, "mass": [1.0]}, r"shape \(2,\)"),
        ({"queries": X, "keys": X, "mass": [1.0, -1.0]}, "mass must be"),
        ({"queries": X, "keys": X, "mass": [0.0, 0.0]}, "mass must be"),
        ({"queries": X, "keys": X, "mass": [np.nan, 1.0]}, "mass must be"),
        ({"queries": X, "keys": X, "beta": -3.0}, "beta must be finite and >= 0, got -3.0"),
        ({"queries": X, "keys": X, "beta": float("nan")}, "beta must be"),
        ({"queries": X, "keys": X, "beta": "hot"}, "beta must be"),
        ({"queries": X, "keys": X, "kernel": "fast"}, "unknown kernel 'fast'; choose from auto, blocks"),
        ({"queries": X, "keys": X, "rtol": 0.0}, "rtol must be"),
        ({"queries": X, "keys": X, "rtol": "low"}, "rtol must be"),
        ({"queries": np.ones((2, 9)), "keys": np.ones((2, 9)), "kernel": "fused"}, "up to 8, got 9"),
        ({"queries": [[1j, 0.0]], "keys": X}, "real"),
        ({"queries": [["a", "b"]], "keys": X}, "real numbers"),
    ],
)
def test_bad_input_is_a_sentence(arguments, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        attend(**arguments)


def test_float32_tokens_meet_a_tolerance_or_say_what_they_reach() -> None:
    """A tolerance that float32 scores do not meet is met in float64; then only the result is rounded."""
    x = sphere.uniform(500, 2, seed=3)
    exact = attend(x.float().double(), x.float().double(), beta=256.0)
    for rtol in (1e-10, 1e-2):
        found = attend(x.float(), x.float(), beta=256.0, rtol=rtol)
        off = max(
            float((found.mean.double() - exact.mean).norm(dim=1).max()),
            float((found.log_partition.double() - exact.log_partition).abs().max()),
        )
        assert found.mean.dtype == torch.float32
        assert found.error is not None
        assert off <= found.error < 1e-3
    assert float((attend(x.float(), x.float(), beta=256.0, rtol=1e-6).mean - exact.mean).norm(dim=1).max()) < 2e-7
    assert attend(x.float(), x.float(), beta=256.0).error is None


def test_scores_without_digits_are_refused() -> None:
    x = sphere.uniform(300, 2, seed=3)
    with pytest.raises(
        InvalidInput, match=r"have no digits left in float64; use hardmax, or a smaller beta than 1e\+20"
    ):
        attend(x, x, beta=1e20)
    assert bool(torch.isfinite(attend(x, x, beta=1e12).mean).all())


def test_float32_tokens_without_digits_are_computed_in_double_where_a_tolerance_asks_for_it() -> None:
    x = sphere.uniform(300, 2, seed=3).float()
    with pytest.raises(InvalidInput, match="no digits left in float32"):
        attend(x, x, beta=1e9)
    exact = attend(x.double(), x.double(), beta=1e9)
    found = attend(x, x, beta=1e9, rtol=1e-3)
    assert float((found.mean.double() - exact.mean).norm(dim=1).max()) <= 1e-6


@pytest.mark.parametrize("kernel", ["auto", "fused", "dense"])
def test_masses_that_float32_cannot_hold_are_not_rounded_away(kernel) -> None:
    """float64 masses of float32 tokens: 1e-300 is not zero, 1e300 not infinite."""
    keys = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    for mass in ([1.0, 1e-300], [1e300, 1.0], [1e300, 1e-8]):
        found = attend(keys[1:], keys, mass, beta=500.0, kernel=kernel)
        assert found.mean.dtype == torch.float32
        assert found.mean[0, 0].item() == pytest.approx(-1.0)
        assert found.log_partition[0].item() == pytest.approx(500.0 + np.log(mass[1]), rel=1e-6)


@pytest.mark.parametrize(
    "arguments",
    [
        {"kernel": ["a"]},
        {"kernel": None},
        {"kernel": np.zeros(3)},
        {"kernel": b"auto"},
        *(
            {name: value}
            for name in ("beta", "rtol")
            for value in (np.ones(2), [1.0], {}, 1j, "1", b"", 10**400, True)
        ),
        {"beta": None},
        {"beta": torch.ones(1)},
        {"rtol": np.nan},
        {"queries": None},
        {"queries": [[1.0], [2.0, 3.0]]},
        {"queries": {}},
        {"keys": object()},
        {"keys": torch.ones(2, 2, dtype=torch.complex64)},
        {"keys": np.zeros((2, 0)), "queries": np.zeros((2, 0))},
        {"values": "abc"},
        {"values": np.zeros((2, 0))},
        {"keys": torch.eye(2, dtype=torch.float64).to_sparse()},
        {"keys": torch.empty(2, 2, device="meta")},
        {"kernel": "x" * 1000},
        {"mass": "heavy"},
        {"mass": [[1.0, 1.0]]},
        {"mass": [1.0, 10**400]},
        {"queries": [[1e200, 0.0]], "keys": [[1e200, 0.0], [1.0, 1.0]]},
    ],
)
def test_nonsense_ends_in_one_short_sentence(arguments) -> None:
    with pytest.raises(InvalidInput) as refusal:
        attend(**({"queries": X, "keys": X} | arguments))
    assert len(str(refusal.value)) < 200 and "\n" not in str(refusal.value)


@pytest.mark.parametrize("start", range(0, 36, 6))
def test_no_error_above_the_stated_one(start) -> None:
    """The first hard calls of the fuzzer; thousands of them run apart."""
    assert [found for seed in range(start, start + 6) if (found := CASES["attend"](seed))] == []


@pytest.mark.parametrize("d", [3, 5, 8, 12])
def test_the_kernel_and_the_digits_do_not_depend_on_the_number_of_threads(d) -> None:
    x = torch.nn.functional.normalize(
        torch.randn(700, d, generator=torch.Generator().manual_seed(d)).double(), dim=1
    )
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            found.append(attend(x, x, beta=3.0))
    finally:
        torch.set_num_threads(threads)
    assert found[0].kernel == found[1].kernel
    assert torch.equal(found[0].mean, found[1].mean)
    assert torch.equal(found[0].log_partition, found[1].log_partition)
