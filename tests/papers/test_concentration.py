import numpy as np
import pytest

from metastable.papers import PAPERS, Setting, select, verify
from metastable.papers.concentration.curves import theorem_curve
from metastable.papers.concentration.families import commuting, plain, repelling, sheared
from metastable.papers.concentration.phases import in_order
from metastable.papers.concentration.terminal import first_crossing
from metastable.papers.concentration.zero_temperature import GOLDEN, subsphere_nodes, two_level
from metastable.theory import distance_to_limit, spectrum

FAST = (
    "zero-temperature-full-gap",
    "great-circle-modes",
    "identity-weights",
    "jordan-block",
    "negative-eigenvalues",
)


@pytest.mark.parametrize("name", FAST)
def test_fast_claims_hold(name):
    (verdict,) = verify("concentration", quick=True, claims=[name], jobs=1)
    assert verdict.holds, (verdict.measured, verdict.note)
    assert verdict.figure is not None and verdict.figure.title


def test_names_are_unique_and_every_claim_says_whose_it_is():
    claims = select("concentration")
    assert len({claim.name for claim in claims}) == len(claims)
    for claim in claims:
        assert claim.source in ("arXiv:2605.10931", "metastable's estimate"), claim.name
        assert claim.statement.endswith(".") and claim.reason and claim.theme and claim.unit, claim.name
        assert "the paper proves" not in claim.statement
    assert PAPERS["concentration"].claims == claims


def test_a_wrong_expectation_fails(monkeypatch):
    from dataclasses import replace

    (claim,) = select("concentration", ["identity-weights"])
    assert replace(claim, expected=0.5).judge(claim.experiment(Setting(quick=True))).verdict == "fails"


def test_families_are_what_they_say():
    assert np.allclose(sheared(0.5).M, np.diag([2.0, 1.0])) and spectrum(sheared(0.5)).delta > 0.1
    assert spectrum(commuting()).delta == 0 and spectrum(commuting()).angle == pytest.approx(np.pi / 2)
    assert spectrum(plain()).angle == pytest.approx(0, abs=1e-12)
    assert spectrum(repelling()).M.value == -1.0


@pytest.mark.parametrize(("d", "k"), GOLDEN)
def test_subsphere_nodes_reproduce_the_closed_forms(d, k):
    measured = distance_to_limit(two_level(d, k), subsphere_nodes(d, k, 36.0), [1.0, 2.0, 4.0, 8.0])
    assert np.allclose(measured, GOLDEN[d, k], atol=1e-9)


def test_crossings_are_interpolated():
    times, values = np.arange(4.0), np.array([0.0, 1.0, 3.0, 2.0])
    assert first_crossing(times, values, 2.0) == pytest.approx(1.5)
    assert np.isnan(first_crossing(times, values, 9.0))
    assert first_crossing(times, -values, -2.0, upwards=False) == pytest.approx(1.5)


def test_order_of_phases():
    assert in_order(np.array([0, 0, 1, 1, 2, 2])) and in_order(np.array([0, 1, 0, 2]))
    assert (
        not in_order(np.array([0, 2, 1]))
        and not in_order(np.array([0, 1, 2, 1]))
        and not in_order(np.array([0, 1]))
    )


def test_theorem_curve_is_the_theorem_s():
    assert theorem_curve(4.0, np.array([0.0])) == pytest.approx(1 + np.sqrt(np.log(5) / 4))


@pytest.mark.slow
def test_quick_run_has_no_failing_claim(tmp_path):
    verdicts = verify("concentration", quick=True, out=tmp_path)
    assert not [v.claim for v in verdicts if v.verdict == "fails"]
    assert sum(v.holds for v in verdicts) >= len(verdicts) - 2
