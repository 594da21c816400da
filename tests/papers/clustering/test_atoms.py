import pytest

from metastable.papers.clustering.atoms import CASES, COLD, with_atom
from metastable.theory import critical_beta
from small_claims import small_verdict


def test_the_atom_is_the_last_token_and_at_the_exact_antipode():
    rho = with_atom(0.2, 5.0)
    assert rho.points[-1].tolist() == [-1.0, 0.0] and float(rho.mass[-1]) == pytest.approx(0.2)


def test_cases_are_warm_or_cold_as_they_say():
    assert all(beta < critical_beta(mass) for mass, beta in CASES)
    assert all(beta > critical_beta(mass) for mass, beta in COLD)


def test_a_density_with_an_atom_keeps_it_and_without_it_synchronises():
    for row in small_verdict("atom-stays").table:
        assert row["1 - R at the end"] == pytest.approx(2 * row["mass"], rel=1e-6)
        assert row["without the atom"] < 1e-9


def test_ever_narrower_bumps_leave_ever_later():
    table = small_verdict("bump-leaves").table
    for mass, beta in CASES:
        when = [row["left at"] for row in table if (row["mass"], row["beta"]) == (mass, beta)]
        assert when == sorted(when) and len(when) >= 3


def test_cold_bumps_end_as_two_atoms():
    verdict = small_verdict("two-atoms")
    assert verdict.measured > 0.95 and verdict.rivals[0].measured < 1e-6
