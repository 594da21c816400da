import numpy as np
import torch

from metastable.monitor.channels.structure import PAIRED, StructureLearner, features, looked_at, places
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
    texts = sorted(walks(4, 3, 8, PAIRED), key=len)
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


def test_of_a_long_text_an_even_selection_is_paired(heard) -> None:
    """Also beside shorter texts, where some of the places of the selection are empty."""
    texts = [walks(1, 5, 20, 20)[0], walks(1, 6, 60, 60)[0]]
    trace = heard(texts)
    found = features(trace)
    alone = features(heard(texts[:1])), features(heard(texts[1:]))
    np.testing.assert_allclose(found, np.concatenate(alone), atol=1e-5)
    pick = np.floor(np.linspace(0, 59, PAIRED) + 0.5).astype(int)
    expected = by_hand(trace.points[:, 1, pick].double(), trace.first[:, 1].double())
    chosen = np.r_[3 * len(trace.points) - 1 : found.shape[1]]
    np.testing.assert_allclose(found[1, chosen], np.array(expected)[chosen], atol=2e-6)
