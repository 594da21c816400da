import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from metastable.errors import InvalidInput, MissingExtra
from metastable.monitor.service import Service, application
from metastable.monitor.service.app import serve
from metastable.monitor.service.schemas import MOST_BYTES, MOST_CHARACTERS, POSTS, ScoresAnswer
from walks import sentences

testclient = pytest.importorskip("starlette.testclient", exc_type=ImportError)


@pytest.fixture(scope="module")
def service(reader):
    return Service(reader)


@pytest.fixture(scope="module")
def client(service):
    return testclient.TestClient(application(service))


def test_scores_have_the_form_that_the_document_says(client) -> None:
    answer = client.post("/score", json={"texts": [*sentences(2, 1), " ".join("q" * 20), ""]})
    assert answer.status_code == 200
    read = ScoresAnswer.model_validate(answer.json())
    assert [score.alarm for score in read.scores] == [False, False, True, False]
    assert read.scores[3].status == "no tokens"


def test_embeddings_come_with_scores(client, reader) -> None:
    answer = client.post("/embed", json={"texts": ["a b c d e f g h i", ""]}).json()
    assert len(answer["embeddings"][0]) == reader.encoder.d and answer["embeddings"][1] is None
    assert len(answer["scores"]) == 2


def test_drift_of_a_batch(client) -> None:
    answer = client.post("/drift", json={"texts": sentences(6, 2), "documents": [1, 1, 2, 2, 3, 3]})
    assert answer.status_code == 200 and 0 <= answer.json()["p"] <= 1


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (os.urandom(500), 400),
        (b"", 400),
        (b"[" * 100_000, 400),
        (b"[]", 422),
        (b'{"texts": []}', 422),
        (b'{"texts": "abc"}', 422),
        (b'{"texts": [1, 2]}', 422),
        (b'{"texts": [null]}', 422),
        (b'{"texts": ["a"], "more": 1}', 422),
        (b'{"texts": ["a"], "rate": 2}', 422),
        (b'{"texts": ["a"], "rate": NaN}', 422),
        (b'{"texts": ["\\ud800"]}', 400),
        (b'{"texts": [' + b'"a",' * 300 + b'"a"]}', 422),
        (b'{"texts": ["' + b"a" * (MOST_CHARACTERS + 1) + b'"]}', 413),
        (b" " * (MOST_BYTES + 1), 413),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(client, body: bytes, code: int) -> None:
    for path in POSTS:
        answer = client.post(path, content=body)
        assert answer.status_code == code, (path, answer.text)
        assert 5 < len(answer.json()["error"]) < 200
    assert client.get("/health").status_code == 200


def test_a_rate_that_cannot_be_promised_is_refused(client) -> None:
    answer = client.post("/score", json={"texts": ["a b c d e f g h"], "rate": 1e-9})
    assert answer.status_code == 400 and "needs 999999999 texts" in answer.json()["error"]


def test_documents_must_fit_the_texts(client) -> None:
    answer = client.post("/drift", json={"texts": sentences(3, 2), "documents": [1]})
    assert answer.status_code == 400 and "one for each of the 3 texts" in answer.json()["error"]


def test_odd_texts_have_an_answer(client) -> None:
    odd = ["\x00\x01\x02", "a " * 100_000, "\ufffd" * 50, "🙂" * 300, "<script>", "\n\t "]
    scores = client.post("/score", json={"texts": odd}).json()["scores"]
    assert len(scores) == len(odd)
    assert scores[1]["status"] == "outside the calibrated range"


def test_a_failure_inside_is_an_answer_and_the_service_lives_on(client, service, monkeypatch) -> None:
    def broken(*args, **kwargs):
        raise RuntimeError("a secret")

    monkeypatch.setattr(service, "embed", broken)
    answer = client.post("/score", json={"texts": ["a"]})
    assert answer.status_code == 500 and "secret" not in answer.text
    monkeypatch.undo()
    assert client.post("/score", json={"texts": ["a"]}).status_code == 200


def test_when_all_seats_are_taken_requests_are_turned_away(client, service) -> None:
    taken = 0
    while service.seats.acquire(blocking=False):
        taken += 1
    try:
        assert client.post("/score", json={"texts": ["a"]}).status_code == 503
        assert client.get("/health").status_code == 200
    finally:
        for _ in range(taken):
            service.seats.release()
    assert client.post("/score", json={"texts": ["a"]}).status_code == 200


def test_requests_at_the_same_time(client) -> None:
    texts = sentences(20, 5)

    def ask(text: str) -> int:
        return client.post("/score", json={"texts": [text]}).json()["scores"][0]["length"]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, texts)) == [len(text.split()) for text in texts]


def test_pages_metrics_and_document(client) -> None:
    assert "Live monitor" in client.get("/").text
    assert "metastable_texts_total" in client.get("/metrics").text
    assert set(POSTS) < set(client.get("/openapi.json").json()["paths"])
    last = client.get("/recent").json()["last"]
    assert client.get(f"/recent?since={last}").json()["entries"] == []
    for strange in ("x", "-1", "²", "9" * 30):
        assert client.get("/recent", params={"since": strange}).status_code == 422


def test_what_is_no_service_or_no_port_is_refused(service) -> None:
    with pytest.raises(InvalidInput, match="service must be a Service"):
        application("service")
    with pytest.raises(InvalidInput, match="port must be"):
        serve(service, "127.0.0.1", 70_000)


def test_the_extra_is_named_where_it_is_missing(service, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "starlette.applications", None)
    with pytest.raises(MissingExtra, match=r"metastable\[serve\]"):
        application(service)
