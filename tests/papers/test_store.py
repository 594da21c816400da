import numpy as np
import pytest

from metastable.errors import StorageError
from metastable.papers import Claim, Outcome, Setting, store, verify
from sample_claims import COUNTED, FIELDS, counted


def test_finished_claims_are_stored_and_not_run_again(tmp_path, marks):
    out = tmp_path / "out"
    (first,) = verify([COUNTED], out=out, jobs=1)
    (second,) = verify([COUNTED], out=out, jobs=1)
    assert marks() == 1
    assert (first.resumed, second.resumed) == (False, True)
    assert second.figure.series[0].y.tolist() == [0.0, 1.0, 2.0]
    assert second.table == ({"n": 3},) and second.note == "fine" and second.seconds == first.seconds
    verify([COUNTED], out=out, jobs=1, seed=1)
    verify([COUNTED], out=out, jobs=1, seed=1, quick=True)
    assert marks() == 3


def test_a_stored_outcome_is_judged_by_the_claim_as_it_is_now(tmp_path, marks):
    verify([COUNTED], out=tmp_path, jobs=1)
    (verdict,) = verify([Claim("counted", "s", counted, 2.0, **FIELDS)], out=tmp_path, jobs=1)
    assert marks() == 1 and verdict.verdict == "fails"


def test_any_name_and_any_number_come_back(tmp_path):
    kept = Outcome(
        float("nan"),
        uncertainty=float("inf"),
        systematic=0.25,
        curves={"file": np.ones(2), "__key__": np.zeros(1)},
        rivals={"r": (1.5, 0.25), "never": float("inf")},
        warnings=("careful",),
        table=[{"n": np.float64(2.0), "word": None}],
    )
    found = store.ClaimStore(tmp_path)
    found.write(COUNTED, Setting(), kept, 1.0, store.claim_key(COUNTED, Setting()))
    outcome, seconds = found.read(COUNTED, Setting())
    assert seconds == 1.0 and np.isnan(outcome.measured) and outcome.uncertainty == float("inf")
    assert outcome.systematic == 0.25
    assert outcome.curves["file"].tolist() == [1.0, 1.0] and outcome.curves["__key__"].tolist() == [0.0]
    assert outcome.rivals == {"r": (1.5, 0.25), "never": (float("inf"), 0.0)} and outcome.warnings == ("careful",)


@pytest.mark.parametrize("damage", ["json", "npz"])
def test_a_damaged_store_is_computed_again(tmp_path, marks, damage):
    verify([COUNTED], out=tmp_path, jobs=1)
    (tmp_path / "claims" / f"counted.{damage}").write_text("{")
    (verdict,) = verify([COUNTED], out=tmp_path, jobs=1)
    assert marks() == 2 and verdict.holds


def test_a_changed_engine_is_another_key(monkeypatch):
    """A stored verdict is of the solver that gave it."""
    before = store.claim_key(COUNTED, Setting())
    assert before == store.claim_key(COUNTED, Setting())
    monkeypatch.setattr(store, "engine", lambda: "another")
    assert store.claim_key(COUNTED, Setting()) != before


@pytest.mark.parametrize(
    ("source", "counts"),
    [
        ("spectral.py", True),
        ("solve/march.py", True),
        ("attention/circle/plane.py", True),
        ("papers/concentration/floor.py", True),
        ("a_room_to_come/first.py", True),
        ("drawing/printed.py", False),
        ("audit/page.py", False),
        ("cli/verify.py", False),
    ],
)
def test_the_engine_is_every_room_that_an_experiment_rests_on(tmp_path, source, counts):
    hashes = []
    for text in ("before", "after"):
        package = tmp_path / text / "metastable"
        (package / source).parent.mkdir(parents=True)
        (package / source).write_text(text)
        hashes.append(store.engine(package))
    assert (hashes[0] != hashes[1]) is counts


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot create the folder"):
        store.ClaimStore(tmp_path / "file" / "claims")
