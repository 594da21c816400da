import math

import numpy as np
import torch

from metastable.monitor.channels.characters import (
    ALPHABET,
    BACKING,
    UNKNOWN,
    WINDOW,
    Characters,
    CharactersLearner,
    spellings,
)
from metastable.monitor.trace import Trace

WORDS = ["the", "##re", "cat", "sat", "on", "a", "mat", "##s", "xq", "##zj", "[UNK]"]


class Tokenizer:
    unk_token_id = 10

    def convert_ids_to_tokens(self, ids):
        return [WORDS[i] for i in ids]


def said(rows: list[list[int]]) -> Trace:
    count = max(1, *(len(row) for row in rows))
    mask = torch.tensor([[i < len(row) for i in range(count)] for row in rows])
    numbers = torch.arange(count).expand(len(rows), count) * mask
    points = torch.zeros(2, len(rows), count, 3)
    lengths = np.array([len(row) for row in rows])
    return Trace(points, points[:, :, 0], mask, numbers, lengths, [np.array(row, dtype=np.int64) for row in rows])


def learnt() -> Characters:
    chance = np.random.default_rng(0)
    learner = CharactersLearner(spellings(Tokenizer(), len(WORDS)))
    learner.add(said([[int(i) for i in chance.integers(0, 8, 40)] for _ in range(50)]))
    return learner.finish()


def test_tokens_are_written_as_they_are_read() -> None:
    written = spellings(Tokenizer(), len(WORDS))
    assert written[:3] == [" the", "re", " cat"] and written[10] == " " + UNKNOWN

    class Bytes:
        def convert_ids_to_tokens(self, ids):
            return [["\u0120the", "re", "\u2581cat"][i] for i in ids]

    assert spellings(Bytes(), 3) == [" the", "re", " cat"]
    assert spellings(None, 3) is None and spellings(object(), 3) is None


def test_surprisals_are_those_of_the_definition() -> None:
    """Three letters in a row by hand, from the counts of two short texts."""
    learner = CharactersLearner(spellings(Tokenizer(), len(WORDS)))
    texts = [[2, 3, 5], [2, 7, 6]]
    learner.add(said(texts))
    law = learner.finish()
    lines = ["   cat sat a", "   cats mat"]  # two spaces in front of each
    counts: dict[str, int] = {}
    for line in lines:
        for i in range(2, len(line)):
            for n in (0, 1, 2):
                counts[f"{n}{line[i - n : i + 1]}"] = counts.get(f"{n}{line[i - n : i + 1]}", 0) + 1
    total = sum(v for k, v in counts.items() if k[0] == "0")

    def p(c: str, before: str) -> float:
        if not before:
            return (counts.get("0" + c, 0) + 0.5) / (total + 0.5 * ALPHABET)
        seen = sum(v for k, v in counts.items() if k[0] == str(len(before)) and k[1:-1] == before)
        return (counts.get(f"{len(before)}{before}{c}", 0) + BACKING * p(c, before[1:])) / (seen + BACKING)

    told = law.evidence(said([[2, 3], [6, 7]]))
    for value, line in zip(told.values, ["   cat sat", "   mats"], strict=True):
        each = [-math.log(p(line[i], line[i - 2 : i])) for i in range(2, len(line))]
        assert abs(value - np.mean(each)) < 1e-5


def test_every_row_is_a_law() -> None:
    p = np.exp(-learnt().surprisal.astype(float))
    np.testing.assert_allclose(p.sum(axis=2), 1.0, atol=1e-5)


def test_an_odd_stretch_is_found_and_its_tokens_carry_it() -> None:
    law = learnt()
    chance = np.random.default_rng(1)
    plain = [[int(i) for i in chance.integers(0, 8, 60)] for _ in range(30)]
    odd = [row[:30] + [8, 9, 9, 9, 9, 9] + row[36:] for row in plain]
    unknown = [row[:30] + [10, 10, 10] + row[33:] for row in plain]
    usual = law.evidence(said(plain)).values
    for texts in (odd, unknown):
        assert law.evidence(said(texts)).values.min() > usual.max()
    weights = law.evidence(said(odd)).weights()
    assert weights is not None and (np.count_nonzero(weights, axis=1) == WINDOW).all()
    assert (weights[:, 30:36].min(axis=1) > np.delete(weights, np.s_[30:36], axis=1).max(axis=1)).all()


def test_empty_texts_and_ids_beyond_the_vocabulary_are_no_error() -> None:
    told = learnt().evidence(said([[], [3], [400, 2]]))
    assert told.values[0] == 0 and np.isfinite(told.values).all()
    assert np.isfinite(told.weights()).all()
    assert not learnt().evidence(said([[], []])).weights().any()
