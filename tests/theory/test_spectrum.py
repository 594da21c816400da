import json
import math

import numpy as np
import pytest

import metastable as ms
from metastable.errors import InvalidInput
from metastable.papers.concentration.families import commuting, plain, sheared
from metastable.theory import forecast, spectrum

I2 = np.eye(2)


def test_rates_and_delta_of_the_reference_families():
    G = spectrum(sheared(0.5))
    assert G.kind == "point pair" and G.gap == pytest.approx(1.0)
    assert G.g_in == pytest.approx(1 / math.hypot(1, 0.5))
    assert G.g_out == pytest.approx(1.0)
    assert G.delta == pytest.approx(math.hypot(1, 0.5) - 1)
    # the top of V is (1, -b): the angle to e1 is atan(b)
    assert G.angle == pytest.approx(math.atan(0.5), abs=1e-7)
    C = spectrum(commuting())
    assert C.delta == 0 and C.angle == pytest.approx(math.pi / 2)
    assert [a.holds for a in C.assumptions] == [True, True, True, True, False]
    assert "log beta" in C.assumptions[-1].sentence
    I = spectrum(plain())
    assert all(a.holds for a in I.assumptions) and "does not end" in I.assumptions[-1].sentence


def test_delta_on_a_great_circle_is_the_minimum():
    B = np.array([[1.0, 0.0, 0.7], [0.0, 2.0, 0.0], [0.0, 0.0, 1.0]])
    s = spectrum(ms.AttentionWeights(V=np.diag([2.0, 2.0, 0.5]) @ np.linalg.inv(B.T), B=B))
    assert s.dimension == 2
    # e2 is an eigenvector of B^T, so that a token there looks for itself
    assert s.delta == pytest.approx(0.0, abs=1e-8)


def test_singular_scores_and_near_ties_are_reported():
    s = spectrum(ms.AttentionWeights(V=I2, B=np.diag([1.0, 0.0])))
    assert s.singular and s.B_condition == math.inf
    assert not s.assumptions[0].holds
    tie = spectrum(ms.AttentionWeights(V=np.diag([1.0, 1.0 - 3e-6]), B=I2))
    assert not tie.M.isolated and not tie.assumptions[2].holds
    json.dumps(s.to_dict(), allow_nan=False)
    json.dumps(tie.to_dict(), allow_nan=False)


def test_circle_of_antipodal_pairs_and_mixed_signs():
    pairs = spectrum(ms.AttentionWeights(V=-np.diag([2.0, 2.0, 0.5]), B=-np.eye(3)))
    assert pairs.attends == "antipode" and pairs.clusters_stay
    mixed = spectrum(ms.AttentionWeights(V=np.diag([2.0, -2.0, 0.5]), B=np.diag([1.0, -1.0, 1.0])))
    assert mixed.dimension == 2 and mixed.attends == "neither"
    assert "out of range" in mixed.assumptions[-1].sentence and not mixed.assumptions[-1].holds


def test_huge_weights_are_one_sentence():
    huge = np.diag([1e200, 1e200])
    with pytest.raises(InvalidInput, match="finite entries"):
        forecast(ms.AttentionWeights(V=huge, B=huge), 1.0, ms.sphere.equispaced(10))
    large = np.diag([2e150, 1e150])
    s = spectrum(ms.AttentionWeights(V=large, B=large))
    assert s.M.symmetric and s.normality_defect == 0 and s.gap == pytest.approx(3e300)
