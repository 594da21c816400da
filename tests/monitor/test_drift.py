import numpy as np
import pytest

from metastable.monitor.conformal import Conformal
from metastable.monitor.drift import UNKNOWN_CORRELATION, Blocks, judge_batch, normal_scores


def sums(documents: int, each: int, rho: float, seed: int) -> tuple[np.ndarray, list[int]]:
    """Normal sums with correlation rho inside a document."""
    chance = np.random.default_rng(seed)
    shared = np.repeat(chance.normal(size=documents), each)
    own = chance.normal(size=documents * each)
    return np.sqrt(rho) * shared + np.sqrt(1 - rho) * own, [i // each for i in range(documents * each)]


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.7])
def test_correlation_inside_documents_is_found(rho: float) -> None:
    """300 documents of four texts: standard error of rho about 0.035."""
    values, documents = sums(300, 4, rho, 0)
    blocks = Blocks.of(Conformal.of(values), values, documents)
    assert blocks.measured and abs(blocks.correlation - rho) < 0.1


@pytest.mark.parametrize("single", [True, False])
def test_batches_alarm_at_the_nominal_rate(single: bool) -> None:
    """400 batches of ten at 5%, of one document or of ten: standard error 0.011, and that of the calibration."""
    values, documents = sums(200, 4, 0.4, 1)
    whole = Conformal.of(values)
    blocks = Blocks.of(whole, values, documents)
    alarms = 0
    for seed in range(400):
        batch, named = sums(1, 10, 0.4, 1000 + seed) if single else sums(10, 1, 0.4, 1000 + seed)
        p = judge_batch(blocks, normal_scores(whole, batch), named)[2]
        alarms += p <= 0.05
    assert 0.01 < alarms / 400 < 0.1


def test_a_shift_of_many_documents_is_drift() -> None:
    values, documents = sums(200, 4, 0.4, 1)
    whole = Conformal.of(values)
    blocks = Blocks.of(whole, values, documents)
    batch, named = sums(20, 1, 0.4, 7)
    assert judge_batch(blocks, normal_scores(whole, batch + 1.5), named)[2] < 1e-4


def test_without_documents_of_several_texts_the_correlation_is_taken_for_large() -> None:
    values = np.random.default_rng(0).normal(size=100)
    blocks = Blocks.of(Conformal.of(values), values, list(range(100)))
    assert not blocks.measured and blocks.correlation == UNKNOWN_CORRELATION
