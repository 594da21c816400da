"""Several heads at once against the dense kernel, head by head."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metastable.attention import attend
from metastable.attention.heads import attend_heads
from metastable.errors import InvalidInput


def draw(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(seed=st.integers(0, 10**6), n=st.integers(1, 12), heads=st.integers(1, 4))
def test_every_head_is_what_attend_gives(seed, n, heads):
    q, k, v, mass = draw(seed, heads, 5, 3), draw(seed + 1, heads, n, 3), draw(seed + 2, heads, n, 2), draw(seed, n)
    mass = mass.abs() + 0.1
    found = attend_heads(1.7 * q, k, v, mass.log().expand(heads, n))
    for h in range(heads):
        expected = attend(q[h], k[h], mass, 1.7, values=v[h], kernel="dense").mean
        torch.testing.assert_close(found[h], expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_scores_and_tokens_without_mass(dtype):
    """Scores of 1e4 overflow nothing, and a key whose mass is zero is never attended."""
    q = torch.tensor([[[1e4]]], dtype=dtype)
    k = torch.tensor([[[1.0], [1.0], [2.0]]], dtype=dtype)
    v = torch.tensor([[[3.0], [5.0], [7.0]]], dtype=dtype)
    log_mass = torch.tensor([[0.0, 0.0, -torch.inf]], dtype=dtype)
    assert attend_heads(q, k, v, log_mass).item() == pytest.approx(4.0)


def test_heads_that_do_not_match_are_refused():
    q, k, v, log_mass = draw(0, 2, 5, 3), draw(1, 2, 4, 3), draw(2, 2, 4, 6), draw(3, 2, 4)
    for wrong in (
        (q[0], k, v, log_mass),
        (q, k[:1], v, log_mass),
        (q, k, v[:, :2], log_mass),
        (q, k, v, log_mass[0]),
    ):
        with pytest.raises(InvalidInput, match="heads need queries"):
            attend_heads(*wrong)
    with pytest.raises(InvalidInput, match="must be tensors"):
        attend_heads(q, k, v, None)
