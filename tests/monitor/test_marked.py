import pytest

from metastable.encoders.inputs import Inputs
from metastable.monitor.marked import LONGEST, segments
from metastable.monitor.score import Mark
from tiny_encoders import WORDS, transformers


@pytest.fixture
def inputs(tmp_path) -> Inputs:
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    tokenizer = transformers.BertTokenizerFast.from_pretrained(tmp_path)
    return Inputs("text", tokenizer, len(WORDS), 40)


def test_marked_tokens_stand_in_their_text(inputs) -> None:
    text = "a  b, c\nd <i>e</i>"
    pieces = segments(inputs, text, [Mark(1, 0.2), Mark(3, 0.4)])
    assert "".join(piece for piece, _ in pieces) == text
    assert [piece for piece, share in pieces if share] == ["b", "c"]  # the third token is the comma
    assert [share for _, share in pieces if share] == [0.5, 1.0]


def test_a_text_that_was_cut_is_shown_whole_up_to_a_limit(inputs) -> None:
    text = "a b " * 5000
    pieces = segments(inputs, text, [Mark(0, 1.0), Mark(30, 1.0)])
    assert len("".join(piece for piece, _ in pieces)) == LONGEST + 1
    assert pieces[0] == ("a", 1.0) and pieces[-1][0].endswith("…")


def test_no_marks_no_pieces(inputs) -> None:
    assert segments(inputs, "a b", []) == [("a b", 0.0)]
    assert segments(inputs, "", []) == []
