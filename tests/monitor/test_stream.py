import math
import os
from pathlib import Path

import numpy as np
import pytest

from metastable.errors import InvalidInput
from metastable.monitor.conformal import Conformal
from metastable.monitor.stream import Stream, _bet, _rank


def law(seed: int, count: int = 100) -> Conformal:
    return Conformal.of(np.random.default_rng(seed).normal(size=count))


def test_looking_after_every_score_does_not_raise_false_alarms() -> None:
    """200 streams of 200 scores at rate 5%, a small calibration each: at most 10 alarm in the mean; s.e. 3.1."""
    alarms = 0
    for seed in range(200):
        stream = Stream(law(seed, 60), 0.05, seed)
        stream.extend(np.random.default_rng(10_000 + seed).normal(size=200))
        alarms += stream.alarm
    assert alarms <= 10 + 2 * 3.1


def test_ranks_are_uniform_and_independent_however_small_the_calibration() -> None:
    """1000 streams of 20 scores after 30: mean 1/2, neighbours uncorrelated; standard errors 0.002, 0.007."""
    ranks = []
    for seed in range(1000):
        every = np.random.default_rng(50_000 + seed).normal(size=50).round(1)  # rounded: many ties
        stream = Stream(Conformal.of(every[:30]), 0.01, seed)
        state = (stream._edges, stream._counts)
        ranks.append([_rank(score, stream._chance.random(), *state, 30 + i) for i, score in enumerate(every[30:])])
    u = np.array(ranks)
    assert abs(u.mean() - 0.5) < 0.006
    assert abs((u < 0.05).mean() - 0.05) < 0.005
    assert abs(np.corrcoef(u[:, :-1].ravel(), u[:, 1:].ravel())[0, 1]) < 0.021


def test_a_bet_on_a_uniform_rank_is_fair() -> None:
    """The mean wealth after a bet is the wealth before it: by Gauss's rule in v, u = v^8, which tames u^(-0.8)."""
    stream = Stream(law(0), 0.01, 0)
    stream.extend([0.1, 3.0, -1.0])
    before = math.exp(stream.log_wealth)
    nodes, weights = np.polynomial.legendre.leggauss(60)
    v = (nodes + 1) / 2
    after = 0.0
    for x, w in zip(v, weights, strict=True):
        wealth = stream._log_wealth.copy()
        _bet(x**8, stream.seen + 1, wealth)
        after += w / 2 * 8 * x**7 * math.exp(np.logaddexp.reduce(wealth))
    assert abs(after / before - 1) < 1e-6


def test_a_change_is_seen_soon_also_after_a_long_time() -> None:
    chance = np.random.default_rng(1)
    stream = Stream(law(1), 0.01, 0)
    stream.extend(chance.normal(size=10_000))
    assert not stream.alarm
    late = 0
    while not stream.alarm and late < 200:
        stream.add(chance.normal(3.0))
        late += 1
    assert late < 40


def test_memory_is_flat() -> None:
    stream = Stream(law(2), 0.01, 0)
    size = stream._counts.nbytes + stream._edges.nbytes
    stream.extend(np.random.default_rng(3).standard_cauchy(5000))
    assert size == stream._counts.nbytes + stream._edges.nbytes
    assert stream.seen == 5000 and math.isfinite(stream.log_wealth)


@pytest.mark.slow
def test_a_million_scores_keep_memory_flat() -> None:
    """Of the whole process, after a first thousand."""
    pages = Path("/proc/self/statm")
    if not pages.exists():
        pytest.skip("memory is read from /proc")
    stream = Stream(law(2), 0.01, 0)
    scores = np.random.default_rng(4).normal(size=1000)
    stream.extend(scores)
    before = int(pages.read_text().split()[1])
    for _ in range(1000):
        stream.extend(scores)
    assert (int(pages.read_text().split()[1]) - before) * os.sysconf("SC_PAGE_SIZE") < 2**20
    assert stream.seen == 1_001_000


@pytest.mark.parametrize("score", [math.nan, math.inf, None, "3", [1.0, 2.0]])
def test_what_is_no_score_is_refused_and_leaves_the_stream_as_it_was(score) -> None:
    stream = Stream(law(5), 0.01, 0)
    with pytest.raises(InvalidInput, match="score must be"):
        stream.add(score)
    assert stream.seen == 0
