import numpy as np
import pytest
import torch

from metastable import Measure, sphere
from metastable.errors import InvalidInput, NotDefined
from metastable.meanfield import Density, Empirical, nodes


def test_empirical_law_is_its_tokens():
    tokens = Measure(sphere.uniform(5, 4, seed=1), mass=[1, 2, 3, 4, 5])
    law = Empirical(tokens)
    assert nodes(law, 4, 100) is tokens
    with pytest.raises(NotDefined, match="no density"):
        law(tokens.points)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (lambda x: x[:, 0], "density must be >= 0, got -0.99"),
        (lambda x: x[:, 0] * np.nan, "density must be finite, got nan"),
        (lambda x: x, "density must return shape"),
        (lambda x: 1.0, "density must return shape"),
        (lambda x: torch.zeros(len(x)), "density must be positive somewhere"),
        (3.0, "density must be a law, a Measure or a function"),
    ],
)
def test_bad_densities_are_refused_in_one_sentence(function, sentence):
    with pytest.raises(InvalidInput, match=sentence) as caught:
        nodes(function, 2, 64)
    assert "\n" not in str(caught.value)


def test_a_density_without_a_bound_cannot_be_sampled():
    with pytest.raises(NotDefined, match="bound"):
        Density(lambda x: 1 + x[:, 0], 3).sample(10)
    assert Density(lambda x: 1 + x[:, 0], 3, bound=2.0).sample(10).shape == (10, 3)
