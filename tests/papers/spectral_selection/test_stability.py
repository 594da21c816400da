import numpy as np
import pytest

from metastable.papers import Outcome
from metastable.papers.spectral_selection.stability import (
    EXTENT,
    MAP_BETAS,
    MAP_GROUPS,
    jacobian_rate,
    map_figure,
    published_border,
    random_mode,
    stability_map,
)
from metastable.theory import PureMode
from small_claims import small_verdict


def test_no_mode_is_misjudged_and_the_published_form_errs_on_singletons_only():
    rows = {row["kind"]: row for row in small_verdict("pure-mode-criterion").table}
    assert sum(row["cases"] for row in rows.values()) >= 1000
    assert all(row["mismatches, exact"] == 0 for row in rows.values())
    assert all(row["cases"] > 20 and 0 < row["stable"] < row["cases"] for row in rows.values())
    wrong = {kind: row["mismatches, published"] for kind, row in rows.items()}
    assert wrong["all agree"] == wrong["split, groups of two and more"] == 0
    assert wrong["one token"] + wrong["split with a singleton"] > 0


def test_random_modes_are_of_every_kind():
    modes = [random_mode(np.random.default_rng(seed)) for seed in range(300)]
    assert {len(mode.eigenvalues) for mode in modes} == {2, 3, 4, 5}
    assert any(mode.split for mode in modes) and any(not mode.split for mode in modes)
    assert any(mode.value < 0 and mode.stable for mode in modes) and any(
        mode.value > 0 and mode.stable for mode in modes
    )


def test_the_rate_is_that_of_the_mode():
    mode = PureMode((1.0, -0.5, 0.2), 0, 3, 1, 0.8)
    assert jacobian_rate(mode) == pytest.approx(mode.growth, abs=1e-13)


def test_the_border_separates_the_published_region():
    for beta in MAP_BETAS:
        for plus, minus in MAP_GROUPS[:2]:
            upper = published_border(beta, plus / minus)[0]
            for L, l in zip(upper.x[1::20], upper.y[1::20], strict=True):
                if l < EXTENT:
                    assert PureMode((L, l - 1e-6), 0, plus, minus, beta).published
                    assert not PureMode((L, l + 1e-6), 0, plus, minus, beta).published
    assert published_border(0.01, 4.0) == []  # outside of the map


def test_the_map_has_a_panel_for_every_temperature_and_pair_of_groups():
    figure = map_figure(Outcome(0.0, curves=stability_map(5)))
    assert len(figure.panels) == len(MAP_BETAS) * len(MAP_GROUPS) and figure.columns == len(MAP_GROUPS)
    middle = figure.panels[3].values  # beta = 1, equal groups: rows are l, columns are L
    assert middle[2, 4] == pytest.approx(PureMode((EXTENT, 0.0), 0, 4, 4, 1.0).growth) and middle[4, 2] > 0
