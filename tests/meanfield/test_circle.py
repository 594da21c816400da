import math

import numpy as np
import pytest
import torch

from metastable import sphere
from metastable.meanfield import Uniform, VonMisesFisher
from metastable.meanfield.circle import circle_law, two_atoms_from_cumulative


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_two_atoms_of_the_uniform_law_in_closed_form(p):
    """W2^2 = 2 - (4/pi) sin(pi p); p = 1/2 is R6."""
    found = two_atoms_from_cumulative(circle_law(Uniform(2)).cumulative, 0.7, p)
    assert found == pytest.approx(math.sqrt(2 - 4 / math.pi * math.sin(math.pi * p)), abs=1e-12)


def test_cumulative_distribution_of_a_sharp_law():
    law = circle_law(VonMisesFisher([0.0, 1.0], 2000.0))
    assert law.resolved
    assert law.total == pytest.approx(1.0, abs=1e-12)
    assert law.mass(math.pi / 2, 2.0) == pytest.approx(0.5, abs=1e-12)
    points = sphere.from_angles(np.array([math.pi / 2]))
    assert float(law.density(np.array([math.pi / 2]))[0]) == pytest.approx(
        float(VonMisesFisher(torch.tensor([0.0, 1.0]), 2000.0)(points)[0]), rel=1e-11
    )
