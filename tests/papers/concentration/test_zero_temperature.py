import numpy as np
import pytest

from metastable.papers import verify
from metastable.papers.concentration.zero_temperature import (
    CLOSED_FORM_W2,
    random_symmetric,
    subsphere_nodes,
    two_level,
)
from metastable.theory import distance_to_limit, spectrum


def test_the_full_gap_claim_holds():
    (verdict,) = verify("concentration", quick=True, claims=["zero-temperature-full-gap"], jobs=1)
    assert verdict.holds, (verdict.measured, verdict.note)
    assert verdict.figure is not None and verdict.figure.title


@pytest.mark.parametrize(("d", "k"), CLOSED_FORM_W2)
def test_subsphere_nodes_reproduce_the_closed_forms(d, k):
    measured = distance_to_limit(two_level(d, k), subsphere_nodes(d, k, 36.0), [1.0, 2.0, 4.0, 8.0])
    assert np.allclose(measured, CLOSED_FORM_W2[d, k], atol=1e-9)


@pytest.mark.parametrize("d", [2, 5])
def test_random_weights_have_a_symmetric_product_with_eigenvalue_2_on_top(d):
    found = spectrum(random_symmetric(d, seed=d))
    assert found.M.symmetric and found.M.value == pytest.approx(2.0, abs=1e-10) and found.M.gap >= 1.0 - 1e-10
