import math

import numpy as np
import torch

from metastable.monitor.channels.lexical import Lexical, LexicalLearner
from metastable.monitor.trace import Trace


def spoken(*texts: list[int]) -> Trace:
    k = max(map(len, texts))
    mask = torch.tensor([[i < len(text) for i in range(k)] for text in texts])
    points = torch.zeros(1, len(texts), k, 2)
    number = torch.arange(k).expand(len(texts), k)
    lengths = np.array([len(text) for text in texts])
    return Trace(points, points[:, :, 0], mask, number, lengths, [np.array(text) for text in texts])


def learnt() -> Lexical:
    learner = LexicalLearner(10)
    learner.add(spoken([1, 2, 3], [1, 2, 2]))
    return learner.finish()


def test_surprisal_is_that_of_the_counts() -> None:
    """c(1) = 2, c(2) = 3, c(3) = 1, N = 6, V = 10; two pairs begin with 1, two with 2, none with 3."""
    found = learnt().surprisal(np.array([1, 2, 3, 7]))
    p = [3 / 16, (2 + 4 / 16) / 3, (1 + 2 / 16) / 3, (0 + 1 / 16) / 1]
    np.testing.assert_allclose(found, [-math.log(x) for x in p])


def test_probabilities_after_a_token_sum_to_one() -> None:
    law = learnt()
    for before in (1, 2, 9):
        total = sum(math.exp(-law.surprisal(np.array([before, after]))[1]) for after in range(10))
        assert abs(total - 1) < 1e-12


def test_evidence_names_the_tokens() -> None:
    told = learnt().evidence(spoken([1, 2, 3], [1, 9]))
    assert told.values[1] > told.values[0]
    assert told.weights()[1].argmax() == 1 and told.weights()[1, 2] == 0
    assert told.place.tolist() == [-1, -1]


def test_an_id_beyond_the_vocabulary_and_an_empty_text_have_an_answer() -> None:
    law = learnt()
    assert np.isfinite(law.surprisal(np.array([1, 12]))).all()
    assert len(law.surprisal(np.array([], dtype=int))) == 0
