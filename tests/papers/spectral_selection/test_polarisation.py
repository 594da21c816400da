import torch

from metastable.papers.spectral_selection.polarisation import at_both_ends
from small_claims import small_verdict


def test_both_ends_of_an_axis():
    e = torch.eye(2, dtype=torch.float64)
    systems = torch.stack([torch.stack([e[0], -e[0]]), torch.stack([e[0], e[0]]), torch.stack([e[0], e[1]])])
    assert at_both_ends(systems, 0).tolist() == [True, False, False]


def test_pairs_and_groups_end_on_the_most_negative_axis():
    for row in small_verdict("negative-pair").table:
        assert row["share antipodal on the most negative axis"] > 0.97
    verdict = small_verdict("negative-split")
    assert all(row["share split on the most negative axis"] > 0.95 for row in verdict.table)
    assert {row["n"] for row in verdict.table} == {3, 4, 5, 6, 8}
