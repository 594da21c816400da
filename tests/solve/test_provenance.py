"""Where a result comes from."""

import pytest
import torch

from metastable.errors import InvalidInput
from metastable.solve.provenance import SCHEMA_VERSION, fingerprint, provenance
from small_runs import small_run


def test_the_record_of_a_run():
    record = small_run(seed=7).provenance
    assert record["schema_version"] == SCHEMA_VERSION
    assert record["seed"] == 7
    assert {"metastable", "python", "torch", "numpy"} <= record["software"].keys()
    assert record["parameters"]["flow"]["beta"] == 8.0
    assert provenance({}, None)["parameters"] == {}


def test_the_fingerprint_is_that_of_earlier_versions():
    """Stored runs are recognised by it, so it must never change by itself."""
    assert fingerprint({"b": [1.5, None], "a": "x"}, torch.tensor([1.0, 2.0]).double()) == (
        "313953f206297378f3cdac98fa82d1a8f43a6217a2b1a3f33fc85219a9ca8357"
    )


def test_the_order_of_parameters_does_not_matter_but_every_value_does():
    one = fingerprint({"a": 1, "b": 2}, torch.zeros(2))
    assert one == fingerprint({"b": 2, "a": 1}, torch.zeros(2))
    assert one != fingerprint({"a": 1, "b": 3}, torch.zeros(2))
    assert one != fingerprint({"a": 1, "b": 2}, torch.ones(2))
    with pytest.raises(InvalidInput, match="numbers, strings, lists and dicts"):
        fingerprint({"a": object()})
