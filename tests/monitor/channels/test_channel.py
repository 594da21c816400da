import numpy as np

from metastable.monitor.channels.channel import Evidence


def test_evidence_may_know_neither_places_nor_tokens() -> None:
    told = Evidence(np.zeros(2), np.full(2, -1))
    assert told.tokens is None and told.place.tolist() == [-1, -1]
