"""What the transpose of attention is given."""

import torch

from metastable.attention.backwards import Backwards


def test_all_of_it_becomes_float64_and_keeps_its_values():
    given = Backwards(*(torch.rand(3, 2) for _ in range(7)))
    exact = given.double()
    assert type(exact) is Backwards
    assert all(part.dtype == torch.float64 for part in exact)
    assert all(bool((a == b).all()) for a, b in zip(given, exact, strict=True))
