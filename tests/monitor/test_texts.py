import pytest

from metastable.errors import InvalidInput
from metastable.monitor.score import Score
from metastable.monitor.texts import labels, readable, scores_in


def test_blank_texts_are_left_out_with_their_documents(encoder) -> None:
    items, named, count = readable(encoder.inputs, [[5, 6], "  ", [7, 8, 9]], ["a", "b", "c"])
    assert len(items) == 2 and named == ["a", "c"] and count == 3


@pytest.mark.parametrize("texts", [None, 3, {"a": 1}, b"abc", {1, 2}])
def test_what_is_no_list_of_texts_is_refused(encoder, texts) -> None:
    with pytest.raises(InvalidInput, match="texts must be a list"):
        readable(encoder.inputs, texts, None)


def test_every_text_has_a_document() -> None:
    with pytest.raises(InvalidInput, match="one for each of the 3 texts, got 2"):
        labels(["a", "b"], 3)


def test_scores_are_told_from_texts() -> None:
    score = Score.unjudged("no tokens", 0)
    assert scores_in([score, score]) == (score, score)
    assert scores_in(["a text"]) is None and scores_in([]) is None
