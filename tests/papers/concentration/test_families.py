import numpy as np
import pytest

from metastable.papers.concentration.families import commuting, competing, plain, repelling, sheared
from metastable.theory import spectrum


def test_families_are_what_they_say():
    assert np.allclose(sheared(0.5).M, np.diag([2.0, 1.0])) and spectrum(sheared(0.5)).delta > 0.1
    assert spectrum(commuting()).delta == 0 and spectrum(commuting()).angle == pytest.approx(np.pi / 2)
    assert spectrum(plain()).angle == pytest.approx(0, abs=1e-12)
    assert spectrum(repelling()).M.value == -1.0


@pytest.mark.parametrize("d", [2, 3])
def test_scores_and_values_compete_for_the_direction(d):
    found = spectrum(competing(d))
    assert np.allclose(found.M.space[:, 0].abs(), np.eye(d)[0], atol=1e-12)
    assert np.allclose(found.V.space[:, 0].abs(), np.eye(d)[1], atol=1e-12)
    assert found.M.value == 4.0 and found.V.value == 2.0
