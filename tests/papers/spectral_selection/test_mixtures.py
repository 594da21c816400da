from metastable.papers.spectral_selection.mixtures import CASES, speed
from metastable.theory import mixed_equilibria
from small_claims import small_verdict


def test_the_published_roots_stand_in_the_table_to_ten_digits():
    rows = small_verdict("mixed-equilibria").table
    assert {"0.0239051913", "-0.2341172382", "-0.4323657845"} <= {row["q"] for row in rows}
    assert all(row["speed"] < 1e-14 for row in rows)


def test_tokens_move_where_q_is_no_root():
    case = CASES[0]
    (first, *_) = mixed_equilibria(*case)
    assert speed(case, first) < 1e-14 < 1e-3 < speed(case, first + 0.01)
