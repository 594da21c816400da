import torch

from metastable.attention.batch import attend_many_unchecked


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
