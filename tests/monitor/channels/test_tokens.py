import numpy as np
import torch

from metastable.monitor.channels.tokens import TokenLearner, mid_depth
from metastable.monitor.trace import Trace
from walks import walks


def learnt(heard):
    learner = TokenLearner()
    for seed in range(20):
        learner.add(heard(sorted(walks(20, seed), key=len)))
    return learner.finish()


def test_typ_is_the_mean_distance_of_the_tokens(heard) -> None:
    typical, _ = learnt(heard)
    texts = sorted(walks(3, 50), key=len)
    trace = heard(texts)
    told = typical.evidence(trace)
    inverse = (typical.law.whiten @ typical.law.whiten.T).double()
    for b, text in enumerate(texts):
        s = trace.points[mid_depth(len(trace.points)), b, : len(text)].double() - typical.law.mean.double()
        each = torch.einsum("ni,ij,nj->n", s, inverse, s) / s.shape[1]
        np.testing.assert_allclose(told.values[b], float(each.mean()), rtol=1e-4)
        np.testing.assert_allclose(told.weights()[b, : len(text)], each.numpy(), rtol=1e-3, atol=1e-3)
        assert not told.weights()[b, len(text) :].any()


def test_the_worst_window_is_found_by_looking_at_all_of_them(heard) -> None:
    _, window = learnt(heard)
    texts = sorted(walks(6, 51), key=len)
    trace = heard(texts)
    told = window.evidence(trace)
    inverse = (window.law.whiten @ window.law.whiten.T).double()
    for b, text in enumerate(texts):
        n = len(text)
        s = trace.points[mid_depth(len(trace.points)), b, :n].double() - window.law.mean.double()
        each = (torch.einsum("ni,ij,nj->n", s, inverse, s) / s.shape[1]).numpy()
        width = min(16, max(4, n // 4))
        means = [each[i : i + width].mean() for i in range(n - width + 1)]
        np.testing.assert_allclose(told.values[b], max(means), rtol=1e-4)
        inside = np.flatnonzero(told.weights()[b])
        assert inside.tolist() == list(range(int(np.argmax(means)), int(np.argmax(means)) + width))


def test_a_foreign_stretch_is_where_the_window_is() -> None:
    chance = torch.Generator().manual_seed(0)
    learner = TokenLearner()

    def said(points: torch.Tensor) -> Trace:
        b, n = points.shape[:2]
        every = torch.nn.functional.normalize(points, dim=2)[None].expand(3, b, n, 12)
        mask = torch.ones(b, n, dtype=torch.bool)
        return Trace(every, every[:, :, 0], mask, torch.arange(n).expand(b, n), np.full(b, n))

    flat = torch.ones(12)
    flat[0] = 0.2  # a direction in which usual tokens hardly differ
    learner.add(said(flat * torch.randn(50, 64, 12, generator=chance)))
    _, window = learner.finish()
    text = flat * torch.randn(1, 64, 12, generator=chance)
    usual = window.evidence(said(text))
    text[0, 20:36, 0] += 3.0
    told = window.evidence(said(text))
    assert told.values[0] > 2 * usual.values[0]
    assert 24 <= np.flatnonzero(told.weights()[0]).mean() <= 31
