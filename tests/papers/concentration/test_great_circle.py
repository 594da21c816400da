import pytest

from metastable.papers import Setting, verify
from metastable.papers.concentration.great_circle import identity_experiment, mode_experiment


@pytest.mark.parametrize("name", ["great-circle-modes", "identity-weights"])
def test_fast_claims_hold(name):
    (verdict,) = verify("concentration", quick=True, claims=[name], jobs=1)
    assert verdict.holds, (verdict.measured, verdict.note)
    assert verdict.figure is not None and verdict.figure.title


@pytest.mark.parametrize(("experiment", "name"), [(mode_experiment, "mode"), (identity_experiment, "degree")])
def test_measured_and_expected_rates_stand_side_by_side(experiment, name):
    outcome = experiment(Setting(quick=True))
    assert [row[name] for row in outcome.table] == outcome.curves["k"].tolist()
    for row in outcome.table:
        assert row["measured rate"] == pytest.approx(row["expected rate"], rel=1e-5)
