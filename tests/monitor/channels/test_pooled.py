import numpy as np
import torch

from metastable.monitor.channels.pooled import PooledLearner, embedding
from walks import walks


def test_lay_and_emb_are_distances_of_means(heard) -> None:
    learner = PooledLearner("mean")
    for seed in range(10):
        learner.add(heard(sorted(walks(20, seed), key=len)))
    layers, end = learner.finish()
    texts = sorted(walks(3, 40), key=len)
    trace = heard(texts)
    told = layers.evidence(trace)
    for b, text in enumerate(texts):
        logs = []
        for p, law in enumerate(layers.laws):
            away = (trace.points[p, b, : len(text)].mean(dim=0) - law.mean).double()
            inverse = (law.whiten @ law.whiten.T).double()
            logs.append(np.log1p(float(away @ inverse @ away) / len(away)))
        np.testing.assert_allclose(told.values[b], np.mean(logs), rtol=1e-4)
        assert told.place[b] == int(np.argmax(logs))
        # the shares of the tokens sum to n times the distance at that place
        total = len(text) * (np.expm1(max(logs)) * trace.points.shape[3])
        np.testing.assert_allclose(told.weights()[b].sum(), total, rtol=1e-3)
    assert (end.evidence(trace).place == len(trace.points) - 1).all()


def test_the_embedding_is_pooled_as_the_model_does(heard) -> None:
    trace = heard(sorted(walks(2, 1), key=len))
    torch.testing.assert_close(embedding(trace, "cls"), trace.first[-1])
    expected = torch.nn.functional.normalize(trace.points[-1].sum(dim=1), dim=1)
    torch.testing.assert_close(embedding(trace, "mean"), expected)
