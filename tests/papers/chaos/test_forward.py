import pytest

from metastable.papers.chaos.forward import CASES, sizes, squares
from metastable.papers.claim import Setting
from small_claims import small_verdict


def test_both_claims_read_the_same_runs():
    found = squares(Setting(small=True))
    assert set(found) == set(CASES) and found is squares(Setting(small=True))


def test_tables_hold_every_case():
    assert len(small_verdict("context-rate").table) == 4
    rows = small_verdict("context-constant").table
    assert len(rows) == 12 and all(row["n E|.|^2"] == pytest.approx(row["formula"], rel=0.35) for row in rows)
    assert [n for n, _ in sizes(Setting(small=True))] == [8, 16, 32, 80, 200]
