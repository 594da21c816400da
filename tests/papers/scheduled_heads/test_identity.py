import numpy as np
import pytest

from metastable.papers import ESTIMATE, Outcome
from metastable.papers.scheduled_heads.identity import CLAIMS, order_figure
from small_claims import small_verdict


def test_the_identity_closes_to_the_digits_of_the_integrator():
    verdict = small_verdict("energy-identity", "scheduled-heads")
    assert verdict.holds and verdict.measured < 1e-9
    for row in verdict.table:
        assert (row["published G²"] < 1e-9) is row["weights"].endswith("H = 1")


def test_the_identity_is_our_reading():
    assert all(claim.source == ESTIMATE for claim in CLAIMS)


def test_a_residual_and_its_order_share_a_colour():
    dt = np.array([0.1, 0.05, 0.025])
    points, line = order_figure(Outcome(1.0, curves={"dt": dt, "a": 3 * dt})).series
    assert points.colour == line.colour and line.y == pytest.approx(3 * np.asarray(line.x), rel=1e-12)
