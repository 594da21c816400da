"""What tells one flow from another."""

import threading

import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput, StorageError
from metastable.flows.identity import describe_weights, identity, unidentified
from small_runs import weights

X0 = ms.sphere.uniform(5, 2, seed=4)
STRENGTH = 1.0


def own(drift, **attributes):
    """A flow of one's own with this drift."""
    flow = type("Mine", (ms.Flow,), {"d": 2, "drift": drift, "__module__": "notebook"})()
    vars(flow).update(attributes)
    return flow


def mark(flow):
    return ms.solve(flow, X0, 0.1).provenance["fingerprint"]


def closed_over(k):
    return own(lambda self, t, x, m: k * x.roll(1, 1))


def by_global(self, t, x, m):
    return STRENGTH * x.roll(1, 1)


def test_flows_of_this_package_are_their_names_and_parameters():
    assert identity(ms.Hardmax(weights())) == {}
    assert ms.Hardmax(weights()).describe() == {"flow": "Hardmax", "weights": describe_weights(weights())}


def test_equal_flows_share_a_fingerprint_and_others_do_not(monkeypatch):
    """By formula, attribute, closure, global value: each of these changes the run, so it changes the mark."""
    plain = [own(lambda self, t, x, m: 1.0 * x.roll(1, 1)) for _ in range(1)]
    marks = [
        mark(plain[0]),
        mark(own(lambda self, t, x, m: 2.0 * x.roll(1, 1))),
        mark(own(lambda self, t, x, m: self.k * x.roll(1, 1), k=1.0)),
        mark(own(lambda self, t, x, m: self.k * x.roll(1, 1), k=torch.tensor(1.0).double())),
        mark(closed_over(1.0)),
        mark(closed_over(3.0)),
        mark(own(by_global)),
    ]
    monkeypatch.setitem(globals(), "STRENGTH", 2.0)
    marks.append(mark(own(by_global)))
    assert len(set(marks)) == len(marks)
    assert mark(closed_over(3.0)) == marks[5]
    monkeypatch.setitem(globals(), "STRENGTH", 1.0)
    assert mark(own(by_global)) == marks[6]


def test_a_subclass_of_our_flow_is_not_our_flow():
    class SelfAttention(ms.SelfAttention):
        def drift(self, t, points, mass):
            return super().drift(t, points, mass).vector * 2

    a, b = ms.SelfAttention(weights(), 1.0), SelfAttention(weights(), 1.0)
    assert mark(a) != mark(b)
    assert mark(b) == mark(SelfAttention(weights(), 1.0))
    # Weights that were moved to another precision are memory, not identity.
    ms.solve(b, X0, 0.1, dtype=torch.float32)
    assert mark(b) == mark(SelfAttention(weights(), 1.0))


def test_what_cannot_be_read_is_no_ones_run(tmp_path):
    """It runs, never with another one's mark, and is not stored until it says what it is."""
    strange = own(lambda self, t, x, m: x.roll(1, 1), connection=threading.Lock())
    assert unidentified(strange.describe()) == ["connection"]
    assert mark(strange) != mark(strange)
    for flow in (strange, ms.MultiHead([strange, ms.Hardmax(weights())])):
        with pytest.raises(InvalidInput, match="connection cannot be read; pass key= with a word that names it"):
            ms.solve(flow, X0, 0.1, out=tmp_path / "run.zarr")
    strange.describe = lambda: {"flow": "strange", "version": 1}
    stored = ms.solve(strange, X0, 0.1, out=tmp_path / "run.zarr")
    assert torch.equal(ms.solve(strange, X0, 0.1, out=tmp_path / "run.zarr").points, stored.points)
    with pytest.raises(StorageError, match="holds another run"):
        ms.solve(closed_over(1.0), X0, 0.1, out=tmp_path / "run.zarr")


def test_a_description_that_is_no_plain_data_gets_a_sentence():
    flow = own(lambda self, t, x, m: x)
    flow.describe = lambda: {"flow": object()}
    with pytest.raises(InvalidInput, match="numbers, strings, lists and dicts"):
        ms.solve(flow, X0, 0.1)


def test_the_parameters_can_be_read_in_the_provenance():
    described = own(lambda self, t, x, m: x, k=2.5, label="a").describe()
    assert described["parameters"] == {"k": 2.5, "label": "a"}
    assert described["class"] == "notebook.Mine"


def test_weights_are_described_by_digest_and_schedules_by_their_values():
    described = describe_weights(weights())
    assert described["V"] == weights().V.tolist()
    assert described["sha256"] == describe_weights(weights().to())["sha256"]
    layered = describe_weights(ms.Schedule.layers([weights(), weights()], 1.0))
    assert layered["times"] == [0.0, 0.5]
    assert [w["sha256"] for w in layered["weights"]] == [described["sha256"]] * 2
