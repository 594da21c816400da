import numpy as np
import pytest

from metastable.errors import InvalidInput
from metastable.monitor import Monitor
from walks import walks


def test_documents_are_too_few_to_be_split(encoder) -> None:
    with pytest.raises(InvalidInput, match="too few to be split"):
        Monitor.calibrate(encoder, walks(80, 0), documents=[i // 40 for i in range(80)])


def test_false_alarms_are_as_promised(monitor) -> None:
    """600 new walks; with 120 texts for recalibration the rate itself has a standard error of 0.02 at 5%."""
    scores = monitor.score(walks(600, 1))
    p = np.array([score.p for score in scores])
    assert 0.01 <= (p <= 0.05).mean() <= 0.11
    assert abs(p.mean() - 0.5) < 0.08


def test_every_length_has_the_same_false_alarms(monitor) -> None:
    scores = monitor.score(walks(900, 2))
    for low, high in ((8, 19), (19, 30), (30, 41)):
        p = np.array([score.p for score in scores if low <= score.length < high])
        assert abs(p.mean() - 0.5) < 0.12


def test_shifts_alarm_and_say_where(monitor) -> None:
    chance = np.random.default_rng(3)
    for texts in ([[int(i) for i in chance.integers(5, 55, 24)] for _ in range(30)], [[7] * 20, [8, 9] * 10]):
        scores = monitor.score(texts)
        assert np.mean([score.alarm for score in scores]) > 0.9
        for score in scores:
            assert score.channel in monitor.channels and -1 <= score.layer <= 3
            assert all(0 <= mark.number < score.length for mark in score.marks)
            assert sum(mark.share for mark in score.marks) <= 1 + 1e-9


def test_outside_the_calibrated_lengths_nothing_is_said(monitor) -> None:
    scores = monitor.score([[5, 6], list(range(5, 55)) + [5] * 10, [9] * 6])
    assert [score.status for score in scores] == ["outside the calibrated range"] * 3
    assert not any(score.alarm for score in scores)


def test_a_model_that_overflows_is_an_alarm_and_no_error(monitor, encoder) -> None:
    """Points that are not numbers."""
    from dataclasses import replace

    from metastable.monitor.batches import traces
    from metastable.monitor.sites import ear_of

    ear = ear_of(encoder.model, monitor.about, encoder.sites)
    ((_, trace),) = traces(ear, encoder.inputs, encoder.inputs.prepare(walks(2, 4)))
    broken = replace(trace, points=trace.points * float("nan"))
    scores = monitor.calibration.judge(broken, 0.01, np.random.default_rng(0)).scores()
    assert all(score.alarm for score in scores)
