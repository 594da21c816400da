from metastable.papers.perspective.synchronisation import end_of
from small_claims import small_verdict


def test_late_runs_are_long_enough_for_antipodal_clusters():
    assert end_of(0.0) == 30.0 and end_of(3.0) > 4000


def test_more_draws_are_one_cluster_later():
    for row in small_verdict("synchronisation").table:
        assert row["share at t = 30"] <= row["share at the last time"] == 1
