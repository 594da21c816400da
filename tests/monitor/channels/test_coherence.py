import numpy as np
import torch

from metastable.monitor.channels.coherence import RIDGE, CoherenceLearner, depths, states
from metastable.monitor.corruption import DISPLACED, REPLACED
from metastable.monitor.pairs import Pairs
from metastable.monitor.trace import Trace

D, N = 6, 40


def said(points: torch.Tensor) -> Trace:
    """A trace with the same points at every one of four places; the last two tokens of the first text are none."""
    b = len(points)
    mask = torch.ones(b, N, dtype=torch.bool)
    mask[0, -2:] = False
    every = (points * mask[..., None])[None].expand(4, b, N, D)
    return Trace(every, every[:, :, 0], mask, torch.arange(N).expand(b, N), mask.sum(dim=1).numpy())


def drawn(seed: int, count: int) -> tuple[Trace, list[np.ndarray]]:
    """Tokens about zero, touched ones about 0.8 e_0."""
    chance = np.random.default_rng(seed)
    touched = [chance.random(N) < 0.2 for _ in range(count)]
    points = chance.normal(size=(count, N, D)) * 0.3
    points[..., 0] += 0.8 * np.stack(touched)
    return said(torch.from_numpy(points).float()), touched


def learnt() -> tuple[CoherenceLearner, Trace, list[np.ndarray], Trace]:
    learner = CoherenceLearner()
    clean = said(torch.from_numpy(np.random.default_rng(0).normal(size=(50, N, D)) * 0.3).float())
    learner.add(clean)
    trace, touched = drawn(1, 60)
    for kind in (REPLACED, DISPLACED):
        learner.add_corrupted(trace, touched, kind)
    return learner, trace, touched, clean


def test_depths_are_inside_the_network() -> None:
    assert depths(7) == (2, 4) and depths(13) == (4, 8)
    for places in range(2, 40):
        first, second = depths(places)
        assert 1 <= first <= second < places


def test_the_discriminant_is_fishers() -> None:
    learner, trace, touched, clean = learnt()
    odd, _ = learner.finish()
    hit = torch.from_numpy(np.stack(touched)) & trace.mask
    rest = states(trace, None)[trace.mask & ~hit].double()
    kept = torch.cat(
        [states(clean, None)[clean.mask].double(), rest, rest]
    ).numpy()  # both kinds of copies are added
    new = states(trace, None)[hit].double().numpy()
    m0, m1 = kept.mean(axis=0), new.mean(axis=0)
    spread = (np.cov(kept.T, bias=True) + np.cov(new.T, bias=True)) / 2
    spread += RIDGE * np.diag(np.diag(spread))
    w = np.linalg.solve(spread, m1 - m0)
    np.testing.assert_allclose(odd.directions[:, REPLACED].numpy(), w, rtol=1e-4, atol=1e-5)
    assert abs(float(odd.offsets[REPLACED]) + w @ (m0 + m1) / 2) < 1e-4


def test_pairs_tell_what_states_do_not() -> None:
    """States are noise; tokens come in fixed pairs, and a touched one breaks its pair."""
    chance = np.random.default_rng(4)
    table = torch.from_numpy(chance.normal(size=(20, 16))).float()

    def texts(count: int, broken: bool) -> tuple[Trace, list[np.ndarray]]:
        ids = 2 * chance.integers(0, 10, (count, N // 2))[..., None] + np.arange(2)
        rows = ids.reshape(count, N)
        touched = (chance.random((count, N)) < 0.15) & broken
        rows = np.where(touched, chance.integers(0, 20, (count, N)), rows)
        points = torch.from_numpy(chance.normal(size=(4, count, N, D))).float()
        mask = torch.ones(count, N, dtype=torch.bool)
        numbers = torch.arange(N).expand(count, N)
        return Trace(points, points[:, :, 0], mask, numbers, np.full(count, N), list(rows)), list(touched)

    clean, _ = texts(80, False)
    assert clean.ids is not None
    learner = CoherenceLearner(Pairs.fit(table, clean.ids))
    learner.add(clean)
    for kind in (REPLACED, DISPLACED):
        learner.add_corrupted(*texts(80, True), kind)
    odd, _ = learner.finish()
    trace, touched = texts(60, True)
    usual, told = odd.evidence(texts(60, False)[0]), odd.evidence(trace)
    assert (told.values[:, None] > usual.values[None]).mean() > 0.95
    weights = told.weights()
    assert weights is not None and weights[np.stack(touched)].mean() > 1.5 * weights[~np.stack(touched)].mean()
    whole = (states(trace, odd.pairs) @ odd.directions + odd.offsets)[..., REPLACED]
    np.testing.assert_allclose(weights, torch.nn.functional.softplus(whole).numpy(), rtol=1e-4, atol=1e-5)


def test_touched_tokens_carry_the_evidence() -> None:
    learner, *_, clean = learnt()
    odd, order = learner.finish()
    trace, touched = drawn(2, 30)
    usual = odd.evidence(clean)
    told = odd.evidence(trace)
    assert told.values.min() > np.median(usual.values)
    assert told.weights() is not None and not told.weights()[0, -2:].any()
    hit = np.stack(touched)
    assert np.median(told.weights()[hit]) > 5 * np.median(told.weights()[~hit])
    np.testing.assert_allclose(told.values[1], told.weights()[1].mean(), rtol=1e-5)
    np.testing.assert_allclose(order.evidence(trace).values, told.values, rtol=1e-5)  # learnt from the same tokens


def test_the_monitor_has_both_channels_where_texts_have_tokens(monitor) -> None:
    """A random model knows little of order; that trained ones do is measured by benchmarks/detect.py."""
    assert {"odd", "order"} <= set(monitor.channels)
    odd, order = (monitor.calibration.channels[monitor.channels.index(name)] for name in ("odd", "order"))
    assert odd.directions is order.directions and odd.kind != order.kind
    assert not torch.equal(*odd.directions.T)
