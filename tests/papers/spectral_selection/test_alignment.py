import numpy as np
import pytest

from metastable import SelfAttention, solve, sphere
from metastable.papers import Setting
from metastable.papers.spectral_selection.alignment import AXES, CONES, LED_BY_NEGATIVE, _cone
from metastable.theory import selection_weights
from small_claims import small_verdict


def test_spectra_are_what_they_are_called():
    assert all(spectrum[0] > max(map(abs, spectrum[1:])) for spectrum in CONES)
    for spectrum in LED_BY_NEGATIVE:
        assert spectrum[0] == max(spectrum) and min(spectrum) < -spectrum[0]
    assert any(np.argmax(np.abs(values)) != np.argmax(values) for values in AXES)


def test_tokens_of_the_cone_are_on_one_side():
    x = _cone(Setting(), 5, 6, 3)
    assert float(x[..., 0].min()) >= 0 and float(x[..., 1].min()) < 0


def test_every_spectrum_aligns():
    assert all(row["largest 1 - x_1"] < 1e-6 for row in small_verdict("cone-alignment").table)


def test_four_hundred_cold_tokens_on_the_circle():
    """V = diag(1, -2), beta = 30, t = 4: mean |x_2| = .9999993, as many on either side."""
    flow = SelfAttention(selection_weights(np.diag([1.0, -2.0])), 30.0)
    end = solve(flow, sphere.equispaced(400), t=4.0).end.points
    assert round(float(end[:, 1].abs().mean()), 7) == 0.9999993 and int((end[:, 1] > 0).sum()) == 200


def test_cold_tokens_are_on_both_sides_alike():
    for row in small_verdict("cold-selection-axis").table:
        assert row["mean |x| along the largest |l|"] == pytest.approx(1, abs=1e-6) and row["|n_+ - n_-|/n"] < 0.02
