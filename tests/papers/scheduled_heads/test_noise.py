import pytest

from small_claims import small_verdict


def test_the_form_of_the_identity_decides_its_order():
    verdict = small_verdict("ito-residual-order", "scheduled-heads")
    orders = {rival.name: rival.measured for rival in verdict.rivals}
    assert verdict.measured == pytest.approx(0.5, abs=0.2)
    assert orders["Stratonovich form"] == pytest.approx(1.0, abs=0.25)


def test_without_the_ito_term_the_mean_is_off_by_it():
    verdict = small_verdict("energy-martingale", "scheduled-heads")
    (rival,) = verdict.rivals
    assert rival.measured - verdict.measured == pytest.approx(1.0, rel=1e-9)


def test_the_figure_shows_the_noise_around_the_same_path_without():
    figure = small_verdict("weights-law", "scheduled-heads").figure
    noisy, still, *_ = figure.series
    assert noisy.y[0] == still.y[0] and noisy.colour == still.colour
