import pytest

from metastable.papers import Setting
from metastable.papers.common_noise.means import mean_error
from small_claims import small_verdict


def test_expected_error_is_that_of_the_experiment():
    found = small_verdict("mean-grows").uncertainty
    assert found == pytest.approx(mean_error(Setting(small=True)), rel=0.6)


def test_the_mean_grows_while_the_typical_pair_comes_together():
    for row in small_verdict("mean-grows").table:
        assert row["exp of the mean of log"] < 1
        assert (row["predicted"] > 1) == (row["activation"] != "sigmoid")
