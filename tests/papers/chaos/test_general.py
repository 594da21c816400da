import torch

from metastable.papers.chaos.general import CASES, OBSERVERS, reference
from small_claims import small_verdict


def test_nothing_rests_in_the_mean_field():
    for _, w, beta, law, t in CASES[:2]:
        start, end = reference(w, beta, law, t)
        assert start.shape == (OBSERVERS, w.d) and float((end - start).norm(dim=1).max()) > 0.1
        assert torch.allclose(end.norm(dim=1), torch.ones(OBSERVERS).double(), atol=1e-9)


def test_the_table_holds_the_circle_beside_the_spheres():
    rows = small_verdict("context-rate-general").table
    assert [row["case"] for row in rows] == [name for name, *_ in CASES]
    assert all(-0.75 < row["exponent"] < -0.3 for row in rows)
