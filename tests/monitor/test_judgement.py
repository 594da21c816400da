import numpy as np

from metastable.monitor.judgement import Judgement
from metastable.monitor.score import EMPTY, IN_RANGE, OUTSIDE, ChannelScore, Mark


def test_a_score_is_what_the_arrays_say() -> None:
    said = Judgement(
        names=("one", "two"),
        lengths=np.array([12, 0, 900]),
        judged=np.array([True, False, False]),
        p=np.array([0.004, 0.5, 0.6]),
        alarm=np.array([True, False, False]),
        sums=np.array([7.5, 0.0, 0.0]),
        values=np.array([[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]]),
        each=np.array([[0.3, 0.01], [1.0, 1.0], [1.0, 1.0]]),
        surprise=np.array([[1.2, 4.6], [0.0, 0.0], [0.0, 0.0]]),
        place=np.array([[-1, 3], [-1, 0], [-1, 0]]),
        marks={0: (Mark(5, 0.7),)},
    )
    first, second, third = said.scores()
    assert (first.status, first.p, first.alarm, first.surprise, first.length) == (IN_RANGE, 0.004, True, 7.5, 12)
    assert (first.channel, first.layer, first.marks) == ("two", 3, (Mark(5, 0.7),))
    assert first.channels == {"one": ChannelScore(1.0, 0.3, 1.2, -1), "two": ChannelScore(2.0, 0.01, 4.6, 3)}
    assert (second.status, third.status, third.length) == (EMPTY, OUTSIDE, 900)
    assert not second.alarm and not third.alarm and third.p == 1.0
