import numpy as np
import pytest
import torch

from metastable.errors import InvalidInput
from metastable.monitor.gaussian import Gaussian, Moments


def reference(x: np.ndarray) -> np.ndarray:
    """Ledoit and Wolf's estimate by its definition: the mean squared distance of x x^T from S, term by term."""
    n, d = x.shape
    x = x - x.mean(axis=0)
    s = x.T @ x / n
    mu = np.trace(s) / d
    apart = ((s - mu * np.eye(d)) ** 2).sum()
    noise = sum(((np.outer(row, row) - s) ** 2).sum() for row in x) / n**2
    share = min(1.0, noise / apart)
    return (1 - share) * s + share * mu * np.eye(d)


@pytest.mark.parametrize(("n", "d"), [(40, 10), (12, 30), (500, 4)])
def test_shrunk_covariance_is_that_of_the_definition(n: int, d: int) -> None:
    x = np.random.default_rng(n).standard_normal((n, d)) * np.linspace(0.2, 2.0, d)
    x -= x.mean(axis=0)  # so that the first batch is centred as the definition has it
    law = Gaussian.fit(torch.from_numpy(x))
    inverse = (law.whiten @ law.whiten.T).double().numpy()
    np.testing.assert_allclose(inverse @ reference(x), np.eye(d), atol=2e-5)


def test_distance_is_that_of_mahalanobis() -> None:
    x = np.random.default_rng(0).standard_normal((300, 6)) * np.linspace(0.5, 2.0, 6) + 1
    away = x - x.mean(axis=0)
    expected = np.einsum("ni,ij,nj->n", away, np.linalg.inv(reference(x)), away)
    found = Gaussian.fit(torch.from_numpy(x)).distance(torch.from_numpy(x).float()).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_rows_may_come_in_batches() -> None:
    x = torch.randn(200, 5, generator=torch.Generator().manual_seed(2)) + 3
    moments = Moments(5)
    for part in x.split(37):
        moments.add(part)
    whole = Gaussian.fit(x)
    torch.testing.assert_close(moments.gaussian().mean, whole.mean)
    # The fourth moment is taken about the mean of the first batch, which moves the share of shrinkage a little.
    torch.testing.assert_close(moments.gaussian().distance(x), whole.distance(x), rtol=0.05, atol=0.05)


def test_a_direction_that_never_varies_does_not_blow_up() -> None:
    x = torch.randn(5000, 4, generator=torch.Generator().manual_seed(3))
    x[:, 0] = -x[:, 1:].sum(dim=1)
    assert float(Gaussian.fit(x).distance(x).max()) < 1e3


def test_one_row_has_no_covariance() -> None:
    with pytest.raises(InvalidInput, match="at least two rows"):
        Gaussian.fit(torch.zeros(1, 3))
