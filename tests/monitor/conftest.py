"""A small random model and a monitor that is calibrated on texts with a law."""

from __future__ import annotations

import pytest

from metastable.encoders import load
from metastable.monitor import Monitor
from metastable.monitor.batches import traces
from metastable.monitor.sites import ear_of
from tiny_encoders import configs, random_model
from walks import walks


@pytest.fixture(scope="session")
def bert():
    """A small random BERT, as a user would have it in memory."""
    return random_model(configs()["bert"])


@pytest.fixture(scope="session")
def encoder(bert):
    return load(bert, name="tiny bert")


@pytest.fixture(scope="session")
def monitor(encoder):
    """Calibrated on 500 walks, two to a document."""
    return Monitor.calibrate(encoder, walks(500, 0), documents=[i // 2 for i in range(500)])


@pytest.fixture(scope="session")
def heard(encoder, monitor):
    """texts -> the trace of one batch, in the order of the texts."""

    def run(texts, tokens=None):
        ear = ear_of(encoder.model, monitor.about | {"tokens": tokens}, encoder.sites)
        assert sorted(texts, key=len) == list(texts)
        (_, trace), *more = traces(ear, encoder.inputs, encoder.inputs.prepare(texts))
        assert not more
        return trace

    return run
