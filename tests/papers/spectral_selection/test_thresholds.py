import pytest

from small_claims import small_verdict


def test_every_threshold_is_the_formula_s():
    for row in small_verdict("split-threshold").table:
        assert row["measured beta"] == pytest.approx(row["|ln r|/(2|l|)"], rel=0.01)


def test_odd_numbers_end_in_the_mixed_equilibrium():
    for row in small_verdict("odd-three-groups").table:
        assert row["median q of the ends"] == pytest.approx(row["q of P1"], abs=1e-4) and row["share split"] == 0
