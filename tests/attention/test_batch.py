import numpy as np
import pytest
import torch

import metastable as ms
from metastable.attention.batch import attend_many_unchecked, dimensions, read_betas
from metastable.errors import InvalidInput


def test_small_and_large_dimensions_agree_with_the_dense_formula() -> None:
    g = torch.Generator().manual_seed(0)
    for d in (2, 12):
        x = torch.randn(3, 5, d, dtype=torch.float64, generator=g)
        m = torch.full((3, 5), 0.2, dtype=torch.float64)
        beta = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
        mean, log_z = attend_many_unchecked(x, x, x, m, beta)
        scores = beta[:, None, None] * (x @ x.transpose(1, 2)) + torch.log(m)[:, None, :]
        assert torch.allclose(mean, torch.softmax(scores, 2) @ x, rtol=0, atol=1e-12)
        assert torch.allclose(log_z, torch.logsumexp(scores, 2), rtol=1e-13)


def test_attend_takes_an_axis_of_systems() -> None:
    g = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(3, n, d, dtype=torch.float64, generator=g) for n, d in ((4, 2), (6, 2), (6, 3)))
    m, beta = torch.rand(3, 6, dtype=torch.float64, generator=g), [0.0, 2.0, 9.0]
    found = ms.attend(q, k, m, beta, values=v)
    assert found.mean.shape == (3, 4, 3) and found.log_partition.shape == (3, 4) and "3 systems" in repr(found)
    for s in range(3):
        one = ms.attend(q[s], k[s], m[s], beta[s], values=v[s])
        assert torch.allclose(found.mean[s], one.mean, rtol=0, atol=1e-13)
        assert torch.allclose(found.log_partition[s], one.log_partition, rtol=1e-13, atol=1e-13)
    plain = ms.attend(q.tolist(), k.numpy(), m[0], 2.0)
    assert torch.allclose(plain.mean[1], ms.attend(q[1], k[1], m[0], 2.0).mean, rtol=0, atol=1e-13)
    assert ms.attend(q.float(), k.float()).mean.dtype == torch.float32


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"beta": [1.0, 2.0]}, "one for each of 3 systems, got 2"),
        ({"beta": -1.0}, "beta must be finite and >= 0"),
        ({"mass": np.ones(5)}, r"mass must have shape \(3, 4\)"),
        ({"keys": np.ones((2, 4, 2))}, "do not match"),
        ({"keys": np.full((3, 4, 2), np.nan)}, "keys must be finite.* system 0"),
        ({"kernel": "fused"}, 'kernel="auto"'),
        ({"beta": [1.0, 1e17, 1.0]}, "of system 1 have no digits"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(arguments, words) -> None:
    x = np.ones((3, 4, 2))
    with pytest.raises(InvalidInput, match=words):
        ms.attend(**({"queries": x, "keys": x} | arguments))


def test_axes_are_counted_and_betas_read() -> None:
    assert [dimensions(x) for x in (np.ones((2, 3)), [[1.0]], torch.ones(1, 1, 1), None, "a", [[1], [1, 2]])] == [
        2, 2, 3, None, None, None,
    ]  # fmt: skip
    assert read_betas(2, 3).tolist() == [2.0] * 3 and read_betas(torch.arange(2), 2).tolist() == [0.0, 1.0]
