import numpy as np
import torch

from metastable.monitor.channels.structure import StructureLearner, features, looked_at, places
from walks import walks


def by_hand(s: torch.Tensor, first: torch.Tensor) -> list[float]:
    """The features of one text, pair by pair. s: (p, n, d)."""
    p, n, _ = s.shape
    rows = []
    for k in range(p):
        rows.append(np.mean([float(s[k, i] @ s[k, j]) for i in range(n) for j in range(n) if i != j]))
    rows += [float((s[k] @ first[k]).mean()) for k in range(p)]
    rows += [float((s[k] * s[k + 1]).sum(dim=1).mean()) for k in range(p - 1)]
    for k in looked_at(p):
        cosine = s[k] @ s[k].T
        other = [[float(cosine[i, j]) for j in range(n) if j != i] for i in range(n)]
        rows += [np.mean(np.square(other)), np.mean([max(row) for row in other])]
    return rows


def test_features_are_those_of_the_definition_also_beside_longer_texts(heard) -> None:
    texts = sorted(walks(4, 3), key=len)
    trace = heard(texts)
    found = features(trace)
    for b, text in enumerate(texts):
        n = len(text)
        expected = by_hand(trace.points[:, b, :n].double(), trace.first[:, b].double())
        np.testing.assert_allclose(found[b], expected, atol=2e-6)
    assert found.shape[1] == len(places(len(trace.points)))


def test_a_repeated_phrase_is_unusual(heard) -> None:
    learner = StructureLearner()
    for seed in range(20):
        learner.add(heard(sorted(walks(20, seed), key=len)))
    channel = learner.finish()
    usual = channel.evidence(heard(sorted(walks(30, 99), key=len)))
    strange = channel.evidence(heard([[7] * 16, [9] * 24]))
    assert strange.values.min() > np.quantile(usual.values, 0.8)
    assert set(strange.place.tolist()) <= set(range(4))
