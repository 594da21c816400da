import numpy as np

from metastable.papers import Setting
from metastable.papers.multihead.competition import COMPETING, competitions
from small_claims import small_verdict


def test_runs_start_in_radial_dominance_and_are_made_once():
    (one,) = competitions(Setting(small=True))
    assert one is competitions(Setting(small=True))[0]
    assert one.margin[0] > 0 > one.margin[len(one.margin) // 2] and (one.heads, one.beta) == COMPETING[0][2:]
    assert (np.diff(one.energy.sum(1)) > -1e-12).all() and np.allclose(one.rate[-1], 0, atol=1e-9)


def test_dominance_ends_before_a_head_falls():
    (row,) = small_verdict("radial-dominance-is-enough").table
    assert 0 < row["dominance until"] < row["a head falls from"]


def test_the_figure_marks_where_dominance_ends():
    figure = small_verdict("single-head-energy-falls").figure
    (moment,) = figure.moments
    assert 0 < moment < figure.series[0].x[-1]
    winner, loser = sorted((series.y for series in figure.series[:2]), key=lambda y: -y[-1])
    assert winner[-1] > 2.5 and loser[-1] < loser.max() - 0.1
