import numpy as np
import pytest

from metastable.papers import Setting
from metastable.papers.spectral_selection.alignment import AXES, CONES, LED_BY_NEGATIVE, _cone
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


def test_the_published_example_of_the_cold_axis():
    row = small_verdict("cold-selection-axis").table[0]
    assert row["eigenvalues"] == "1, -2" and row["mean |x| along the largest |l|"] == pytest.approx(1, abs=1e-6)
    assert row["|n_+ - n_-|/n"] < 0.02
