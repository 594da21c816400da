import json
import threading
from dataclasses import replace

import numpy as np
import pytest

from metastable.errors import InvalidInput
from metastable.monitor.service import Service
from metastable.monitor.service.journal import Journal
from walks import sentences


def test_embeddings_are_the_encoders_own(reader) -> None:
    texts = sentences(5, 1)
    rows, scores = Service(reader).embed(texts)
    np.testing.assert_allclose(rows, reader.encoder.embed(texts).numpy(), atol=1e-5)
    assert [score.length for score in scores] == [len(text.split()) for text in texts]


def test_a_bounded_number_of_scores_is_remembered(reader, tmp_path) -> None:
    service = Service(reader, keep=10, journal=Journal(tmp_path / "log.jsonl"))
    for seed in range(4):
        service.embed(sentences(8, seed))
    assert len(service.recent) == 10
    told = service.since(30)
    assert [entry["number"] for entry in told["entries"]] == [31, 32] and told["last"] == 32
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 32
    assert service.evidence()["seen"] <= 32


def test_alarms_carry_their_marked_text(reader) -> None:
    service = Service(reader)
    text = " ".join("q" * 20)
    service.embed([text])
    (entry,) = service.recent
    assert entry["alarm"] and "".join(piece for piece, _ in entry["segments"]) == text
    assert any(share > 0 for _, share in entry["segments"])
    json.dumps(service.since(0), allow_nan=False)


def test_drift_and_health(reader) -> None:
    service = Service(reader, rate=0.05)
    assert service.drift([" ".join("q" * 20), " ".join("z" * 15)] * 5, None, None).alarm
    told = service.health()
    assert told["rate"] == 0.05 and told["stream"]["seen"] == 10 and told["layers"] == 3


def test_many_threads(reader) -> None:
    service = Service(reader)
    threads = [threading.Thread(target=service.embed, args=(sentences(3, seed),)) for seed in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(entry["number"] for entry in service.recent) == list(range(1, 37))


def test_a_monitor_without_encoder_serves_nothing(reader) -> None:
    with pytest.raises(InvalidInput, match="a service embeds texts"):
        Service(replace(reader, encoder=None))
