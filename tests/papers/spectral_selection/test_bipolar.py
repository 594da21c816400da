import numpy as np
import pytest

from metastable.papers import Setting
from metastable.papers.spectral_selection.bipolar import ALL_SIZES, bipolar, start_share
from metastable.papers.spectral_selection.measuring import starts
from small_claims import small_verdict


def test_one_sided_starts_never_end_bipolar():
    """Inside the cone all align: the share of bipolar ends is at most that of two-sided starts, start by start."""
    setting = Setting(seed=5)
    ends = bipolar(setting, (0.5, 8.0), 3, 60, 9)
    x = starts(setting, 60, 3, 4, 9, 3)[..., 0]
    both = ((x.amax(1) > 0) & (x.amin(1) < 0)).numpy()
    assert not ends[:, ~both].any() and ends[1].sum() > ends[0].sum()


def test_starts_are_on_both_sides_as_often_as_coins_differ():
    assert start_share(2) == 0.5 and start_share(4) == 0.875
    assert np.mean([start_share(n) for n in ALL_SIZES]) == pytest.approx(0.947, abs=5e-4)


def test_the_share_rises_from_nothing():
    shares = [row["bipolar share"] for row in small_verdict("bipolar-rise").table]
    assert shares[0] == 0 and shares == sorted(shares) and shares[-1] > 0.85
    for row in small_verdict("bipolar-cold").table:
        assert row["bipolar share"] <= row["1 - 2^(1-n)"] + 4 * max(row["standard error"], 0.02)
