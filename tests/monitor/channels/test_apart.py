import numpy as np
import torch

from metastable.monitor.channels.apart import ApartLearner, _windows
from metastable.monitor.trace import Trace

D = 5


def said(lengths: list[int], seed: int, foreign: int = 0) -> Trace:
    """Texts of which every token is its topic and noise; `foreign`: so many tokens of each have another topic."""
    chance = np.random.default_rng(seed)
    k = max(lengths)
    mask = torch.tensor([[i < n for i in range(k)] for n in lengths])
    points = chance.normal(size=(2, len(lengths), k, D)) * 0.3 + chance.normal(size=(1, len(lengths), 1, D))
    points[:, :, 4 : 4 + foreign] += chance.normal(size=(1, len(lengths), 1, D))
    every = torch.from_numpy(points).float() * mask[None, ..., None]
    return Trace(every, every[:, :, 0], mask, torch.arange(k).expand(len(lengths), k), np.array(lengths))


def test_windows_cover_a_text_and_are_measured_from_its_mean() -> None:
    trace = said([32, 9, 3, 128], 0)
    away, text, begins = _windows(trace)
    for b, n in enumerate((32, 9, 3, 128)):
        width = min(n, max(4, min(16, n // 4)))
        step = max(1, width // 2)
        starts = sorted({*range(0, n - width, step), n - width})
        assert begins[text == b].tolist() == starts
        points = trace.points[-1, b, :n]
        for found, start in zip(away[text == b], starts, strict=True):
            wanted = np.sqrt(width) * (points[start : start + width].mean(dim=0) - points.mean(dim=0))
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_foreign_stretch_stands_apart_whatever_the_topic() -> None:
    learner = ApartLearner()
    learner.add(said([40] * 100, 1))
    channel = learner.finish()
    usual = channel.evidence(said([40] * 60, 2)).values
    told = channel.evidence(said([40] * 60, 3, foreign=12))
    assert (told.values[:, None] > usual[None]).mean() > 0.95
    weights = told.weights()
    assert weights is not None and weights[:, 4:16].mean() > 1.5 * weights[:, 20:].mean()
    assert (told.place == 1).all()


def test_a_text_has_the_mean_of_its_windows_and_a_token_the_sum_of_those_it_is_in() -> None:
    learner = ApartLearner()
    learner.add(said([40] * 100, 1))
    channel = learner.finish()
    trace = said([30, 7], 4)
    told = channel.evidence(trace)
    away, text, begins = _windows(trace)
    distance = channel.law.typical(torch.from_numpy(away)).numpy()
    weights = told.weights()
    for b, width in enumerate((7, 4)):
        np.testing.assert_allclose(told.values[b], distance[text == b].mean(), rtol=1e-6)
        for i in range(trace.mask.shape[1]):
            inside = (text == b) & (begins <= i) & (i < begins + width)
            np.testing.assert_allclose(weights[b, i], distance[inside].sum(), rtol=1e-6)


def test_a_text_without_tokens_is_no_error() -> None:
    learner = ApartLearner()
    learner.add(said([20] * 30, 1))
    values = learner.finish().evidence(said([12, 0, 1], 2)).values
    assert np.isfinite(values).all() and values[1] == 0
