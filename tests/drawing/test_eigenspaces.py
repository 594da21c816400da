import numpy as np
import pytest

from metastable import AttentionWeights, theory
from metastable.drawing import dominant_axes, spectra
from metastable.errors import InvalidInput


def test_spectra_are_those_of_M_and_of_V():
    w = AttentionWeights(V=[[1.0, 0.0], [0.0, 2.0]], B=[[3.0, 0.0], [0.0, 1.0]])
    of_M, of_V = spectra(theory.spectrum(w)).parts
    assert of_M.values == pytest.approx([3.0, 2.0]) and of_V.values == pytest.approx([2.0, 1.0])
    assert of_M.dominant == of_V.dominant == [True, False]


def test_both_of_a_complex_pair_are_dominant_and_no_axis_is_drawn():
    w = AttentionWeights(V=[[1.0, -1.0], [0.5, 1.0]], B=np.eye(2))
    found = theory.spectrum(w)
    assert spectra(found).parts[0].dominant == [True, True]
    assert spectra(found).parts[0].values[0].imag == pytest.approx(np.sqrt(0.5), abs=1e-12)
    assert dominant_axes(found) == []


def test_axes_are_the_dominant_directions_in_the_order_of_the_phases():
    w = AttentionWeights(V=np.diag([1.0, 2.0, 0.5]), B=np.diag([4.0, 1.0, 1.0]))
    axes = dominant_axes(theory.spectrum(w))
    assert [axis.phase for axis in axes] == [1, 2]
    assert np.allclose(np.abs([axis.direction for axis in axes]), np.eye(3)[:2], atol=1e-12)


def test_a_plane_is_no_axis():
    w = AttentionWeights(V=np.diag([1.0, 1.0, 0.5]), B=np.eye(3))
    assert dominant_axes(theory.spectrum(w)) == []


@pytest.mark.parametrize("spectrum", [None, 3, "M", np.eye(2)])
def test_what_is_no_spectrum_is_refused(spectrum):
    for draw in (spectra, dominant_axes):
        with pytest.raises(InvalidInput, match=r"spectrum must be what theory\.spectrum returns"):
            draw(spectrum)
