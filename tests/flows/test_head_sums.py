import pytest
import torch

from metastable.flows import head_sums as module
from metastable.flows.head_sums import head_sums
from small_runs import gaussian, random_measure


def test_they_are_what_their_definition_says(monkeypatch):
    rho, heads = random_measure(1, 7, 3), gaussian(2, 5, 3, 3)
    heads = heads + heads.mT
    log_z, w = head_sums(rho.points, rho.mass, heads)
    for h, D in enumerate(heads):
        for i, x in enumerate(rho.points):
            weight = rho.mass * torch.exp(torch.stack([x @ D @ y for y in rho.points]))
            assert float(log_z[h, i]) == pytest.approx(float(weight.sum().log()), abs=1e-13)
            assert (w[h, i] - weight @ (rho.points @ D) / weight.sum()).abs().max() < 1e-13
    monkeypatch.setattr(module, "SCORES_AT_ONCE", 2 * 49)
    for once, turns in zip((log_z, w), head_sums(rho.points, rho.mass, heads), strict=True):
        assert (once - turns).abs().max() < 1e-14


def test_many_times_are_as_many_problems():
    rho, heads = random_measure(3, 6, 2), gaussian(4, 3, 2, 2, 2)
    points = torch.nn.functional.normalize(gaussian(5, 3, 6, 2), dim=2)
    log_z, w = head_sums(points, rho.mass, heads + heads.mT)
    for k in range(3):
        one = head_sums(points[k], rho.mass, heads[k] + heads[k].mT)
        assert (log_z[k] - one[0]).abs().max() < 1e-14 and (w[k] - one[1]).abs().max() < 1e-14


def test_large_scores_do_not_overflow_and_massless_tokens_do_not_count():
    points, mass = torch.eye(2, dtype=torch.float64), torch.tensor([1.0, 0.0], dtype=torch.float64)
    log_z, w = head_sums(points, mass, 1e4 * torch.eye(2, dtype=torch.float64)[None])
    assert log_z.tolist() == [[1e4, pytest.approx(0.0, abs=1e-6)]] or torch.isfinite(w[0, 0]).all()
    assert log_z[0, 0] == 1e4 and w[0, 0].tolist() == [1e4, 0.0]
