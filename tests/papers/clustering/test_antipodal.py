import pytest

from metastable.papers import Setting
from metastable.papers.clustering.antipodal import growth, holding_cases, spreading_rate
from metastable.theory import critical_beta, escape_rate, tilting_rate
from small_claims import small_verdict


@pytest.mark.parametrize(("beta", "mass", "normalized"), [(0.3, 0.5, True), (1.2, 0.15, True), (0.8, 0.4, False)])
def test_pairs_close_up_at_their_rate(beta, mass, normalized):
    for seed in (1, 2):
        found = growth(beta, mass, normalized, seed)
        assert found == pytest.approx(tilting_rate(beta, mass, normalized), rel=1e-6)


def test_bumps_are_followed_on_both_sides_of_the_critical_beta():
    signs = {beta > critical_beta(mass) for mass, beta in holding_cases(Setting(small=True))}
    assert signs == {True, False}
    assert spreading_rate(0.25, 0.2, True) == pytest.approx(escape_rate(0.2, 0.25), abs=1e-6)


@pytest.mark.parametrize("name", ["antipodal-tilting", "antipodal-holding"])
def test_figures_show_points_on_their_curve(name):
    curve, points = small_verdict(name).figure.series[:2]
    assert curve.colour == points.colour and points.style == "points"
