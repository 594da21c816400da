import threading

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.encoders import load
from metastable.errors import InvalidInput
from metastable.monitor import Monitor
from tiny_encoders import configs, random_model
from walks import walks


def test_a_text_alone_and_among_others_is_judged_alike(monitor) -> None:
    texts = walks(8, 6)
    together = monitor.score(texts)
    for text, score in zip(texts, together, strict=True):
        assert abs(monitor.score([text])[0].surprise - score.surprise) < 1e-3
    assert [s.length for s in monitor.score(texts[::-1])] == [s.length for s in together][::-1]


def test_empty_texts_have_an_answer(monitor) -> None:
    assert monitor.score([]) == [] and monitor.measure([]).shape == (0, len(monitor.channels))
    scores = monitor.score([" ", walks(1, 0)[0], ""])
    assert [score.status for score in scores] == ["no tokens", "in range", "no tokens"]
    assert np.isnan(monitor.measure([""])).all()


def test_rates_that_cannot_be_promised_are_refused(monitor) -> None:
    m = len(monitor.calibration.whole.scores)
    assert monitor.nominal() == 0.01 and monitor.nominal(0.2) == 0.2
    with pytest.raises(InvalidInput, match=rf"needs 9999 texts for recalibration, this calibration has {m}"):
        monitor.score(walks(1, 0), rate=1e-4)
    for rate in (0, 1, -0.5, float("nan"), "0.1", None.__class__):
        with pytest.raises(InvalidInput):
            monitor.nominal(rate)


def test_a_small_calibration_promises_what_it_can(encoder) -> None:
    small = Monitor.calibrate(encoder, walks(100, 0))
    assert small.nominal() == small.calibration.whole.least > 0.01
    assert monitor_alarms(small) > 0.5


def monitor_alarms(monitor: Monitor) -> float:
    chance = np.random.default_rng(0)
    odd = [[int(i) for i in chance.integers(5, 55, 20)] for _ in range(20)]
    return float(np.mean([score.alarm for score in monitor.score(odd)]))


def test_drift_of_a_batch(monitor) -> None:
    usual = monitor.score(walks(30, 12))
    assert monitor.drift(usual).p > 0.01 and not monitor.drift(usual).alarm
    odd = monitor.drift([[7] * 20, [9] * 18, [12] * 25, [30] * 12])
    assert odd.alarm and odd.judged == 4 and odd.alarms >= 3
    assert monitor.drift([""]).p == 1.0
    with pytest.raises(InvalidInput, match="one for each of the 30 texts"):
        monitor.drift(usual, documents=[1, 2])


def test_documents_make_a_batch_more_telling(monitor) -> None:
    usual = monitor.score(walks(30, 12))
    assert monitor.drift(usual, documents=range(30)).deviation <= monitor.drift(usual).deviation


def test_few_tokens_are_a_choice_of_the_calibration(encoder) -> None:
    sparse = Monitor.calibrate(encoder, walks(300, 0), tokens=8)
    assert sparse.about["tokens"] == 8
    assert monitor_alarms(sparse) > 0.5
    p = [score.p for score in sparse.score(walks(200, 1))]
    assert abs(np.mean(p) - 0.5) < 0.12


def test_a_model_of_another_precision_is_calibrated_as_it_is(encoder, bert) -> None:
    import copy

    double = copy.deepcopy(bert).double()
    own = Monitor.calibrate(encoder, walks(120, 0), model=double)
    assert own.identity.dtype == "float64"
    own.attach(double).detach()
    with pytest.raises(InvalidInput, match="made in float64"):
        own.attach(bert)


@pytest.mark.parametrize("family", ["vit", "modernbert", "albert", "esm"])
def test_other_families(family: str) -> None:
    encoder = load(random_model(configs()[family]), name=family)
    chance = torch.Generator().manual_seed(0)
    if family == "vit":
        usual = [torch.randn(encoder.inputs.shape, generator=chance) for _ in range(80)]
        odd = [torch.ones(encoder.inputs.shape) * 3]
    else:
        usual, odd = walks(120, 0), [[7] * 20, [9] * 30]
    monitor = Monitor.calibrate(encoder, usual)
    assert ("lex" in monitor.channels) == (family != "vit")
    assert all(score.alarm for score in monitor.score(odd))
    assert monitor.score(usual[:3])[0].in_range


def test_threads_may_score_at_once(monitor) -> None:
    texts = walks(10, 3)
    expected = [score.length for score in monitor.score(texts)]
    found = []
    threads = [threading.Thread(target=lambda: found.append(monitor.score(texts))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6 and all([s.length for s in scores] == expected for scores in found)


def test_without_its_encoder_it_can_only_listen(monitor, tmp_path) -> None:
    alone = Monitor.load(monitor.save(tmp_path / "c.npz"))
    with pytest.raises(InvalidInput, match="has no encoder to run"):
        alone.score(walks(1, 0))


def test_a_calibration_of_another_model_is_refused(monitor, tmp_path) -> None:
    other = load(random_model(configs()["bert"], seed=7))
    with pytest.raises(InvalidInput, match="belongs to weights"):
        Monitor.load(monitor.save(tmp_path / "c.npz"), other)


def test_few_texts_are_refused(encoder) -> None:
    with pytest.raises(InvalidInput, match="at least 80 texts"):
        Monitor.calibrate(encoder, walks(20, 0))


def test_it_says_what_it_is(monitor) -> None:
    assert repr(monitor).startswith("Monitor('tiny bert', 500 texts of 250 documents")
    assert ms.Monitor is Monitor
