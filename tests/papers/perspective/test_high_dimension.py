import numpy as np

from small_claims import small_verdict


def test_deviations_fall_with_the_dimension_and_are_of_the_stated_size():
    rows = small_verdict("high-dimension").table
    assert (np.diff([row["deviation"] for row in rows]) < 0).all()
    assert all(0.5 < row["over sqrt(log d/d)"] < 3 for row in rows)
