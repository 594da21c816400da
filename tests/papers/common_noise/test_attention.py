import pytest

from metastable.papers.common_noise.attention import ENERGIES, attending
from metastable.theory import TwoPointMotion
from small_claims import small_verdict


def test_no_attention_is_none():
    assert attending(3, 0.0, 1.0) is None
    assert float(attending(3, -0.5, 1.0).weights.V[0, 0]) == -0.5


def test_the_noises_are_coercive_and_the_rival_is_not():
    for activation, d, v, beta in ENERGIES:
        assert TwoPointMotion(activation, d, attention=v, beta=beta).coercivity > 0
    activation, d, v, beta = ENERGIES[0]
    assert TwoPointMotion("tanh", d, attention=v, beta=beta).coercivity < 0


def test_rows_of_the_balance():
    verdict = small_verdict("noise-beats-repulsion")
    assert verdict.tolerance < 0.15
    for row in verdict.table:
        assert row["measured"] == pytest.approx(row["2/|Λ|"], rel=0.3)
