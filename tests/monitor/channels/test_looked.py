import numpy as np

from metastable.monitor.channels.looked import LookedLearner
from walks import walks


def test_both_kinds_are_deviations_of_their_features_and_name_a_layer(heard) -> None:
    learner = LookedLearner((1,))
    for seed in range(20):
        learner.add(heard(sorted(walks(20, seed), key=len)))
    usual, strange = heard(sorted(walks(30, 70), key=len)), heard([[7] * 12, [8] * 20])
    for channel in learner.finish():
        told = channel.evidence(strange)
        assert told.values.min() > np.quantile(channel.evidence(usual).values, 0.8)
        assert set(told.place.tolist()) == {1} and told.tokens is None
