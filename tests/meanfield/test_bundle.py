import math

import numpy as np
import pytest
import torch

from metastable import Measure, SelfAttention, solve
from metastable.meanfield import Skewed, VonMisesFisher
from metastable.meanfield.bundle import Bundle, flow_map
from metastable.meanfield.longitudes import Grading
from metastable.meanfield.panel_run import Accuracy
from weight_families import diagonal

FRAME = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])


@pytest.mark.parametrize("grading", [Grading(), Grading(0.7, 0.1)])
def test_masses_integrate_the_law(grading):
    """E x of a von Mises-Fisher law is (coth kappa - 1/kappa) mean."""
    mean = torch.tensor([0.6, 0.0, 0.8], dtype=torch.float64)
    bundle = Bundle.of(VonMisesFisher(mean, 20.0), FRAME, 64, grading)
    panels = bundle.panels()
    mass = bundle.mass(panels)
    assert mass.sum() == pytest.approx(1, abs=1e-9)
    found = np.einsum("kj,kji->i", mass, bundle.start(panels))
    assert np.allclose(found, (1 / math.tanh(20) - 1 / 20) * mean.numpy(), atol=1e-9)


def test_tokens_without_mass_follow_the_map():
    """The panels' polynomials against tokens that are carried along by the nodes themselves."""
    flow, law, t = SelfAttention(diagonal(2, 1, 0.5), 2.0), Skewed([1.0, 0.5, 0.2], 0.6), 1.0
    bundle = Bundle.of(law, FRAME, 16, Grading(0.7, 0.3))
    run = flow_map(flow, bundle, np.array([t]), 2.0, Accuracy.within(1e-8, 5.0), 10**5)
    panels, end = run.frames[0].panels, run.frames[0].theta
    tokens = Measure(torch.from_numpy(bundle.start(panels).reshape(-1, 3)), bundle.mass(panels).ravel())
    exact = solve(flow, tokens, t=t, rtol=1e-8, atol=1e-8).end.points
    gap = (torch.from_numpy(end.reshape(-1, 3)) - exact).norm(dim=1)
    assert float(tokens.mass @ gap.square()) ** 0.5 < 1e-6
    assert len(panels) > len(bundle.panels()), "the separatrix asks for narrower panels"


def test_lines_of_a_part_of_a_bundle_keep_their_panels():
    bundle = Bundle.of(Skewed([1.0, 0.0, 0.0], 0.5), FRAME, 12)
    panels = bundle.panels().halved(np.arange(12 * bundle.cells) % 5 == 0)
    part, values = bundle.on_every(3, panels, bundle.start(panels))
    assert np.array_equal(bundle.every(3).start(part), values)
    assert bundle.every(3).shares.sum() == pytest.approx(1)
