"""Where a result comes from."""

import pytest
import torch

from metastable.errors import InvalidInput
from metastable.solve.provenance import SCHEMA_VERSION, digest, fingerprint, provenance
from small_runs import small_run


def test_the_record_of_a_run():
    record = small_run(seed=7).provenance
    assert record["schema_version"] == SCHEMA_VERSION
    assert record["seed"] == 7
    assert {"metastable", "python", "torch", "numpy"} <= record["software"].keys()
    assert record["parameters"]["flow"]["beta"] == 8.0
    assert provenance({}, None)["parameters"] == {}


def test_the_fingerprint_does_not_change_by_itself():
    """Stored runs are recognised by it."""
    assert fingerprint({"b": [1.5, None], "a": "x"}) == (
        "99057de86ccd075101f28b7a81d40b4c42e0a51d6ec05028d159ad75bdf208c6"
    )
    assert digest(torch.tensor([1.0, 2.0]).double()) == (
        "dc91ce9a50ddc828740aa26743716897fdb2bb64f1db662fe263a59be56145ae"
    )


def test_the_order_of_parameters_does_not_matter_but_every_value_does():
    one = fingerprint({"a": 1, "b": 2})
    assert one == fingerprint({"b": 2, "a": 1})
    assert one != fingerprint({"a": 1, "b": 3})
    assert digest(torch.zeros(2)) != digest(torch.ones(2))
    with pytest.raises(InvalidInput, match="numbers, strings, lists and dicts"):
        fingerprint({"a": object()})
