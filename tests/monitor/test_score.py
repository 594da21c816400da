import json

from metastable.monitor.score import OUTSIDE, ChannelScore, Mark, Score


def test_a_score_in_words_and_as_plain_numbers() -> None:
    channel = ChannelScore(3.0, 0.01, 5.0, 2)
    score = Score("in range", 0.004, True, 12.0, 40, "typ", 2, {"typ": channel}, (Mark(3, 0.5),))
    assert score.sentence() == "ALARM, p = 0.004: typ at place 2 is most surprised"
    plain = json.loads(json.dumps(score.to_dict()))
    assert plain["channels"]["typ"]["p"] == 0.01 and plain["marks"] == [{"number": 3, "share": 0.5}]


def test_outside_the_range_is_an_answer_of_its_own() -> None:
    score = Score.unjudged(OUTSIDE, 3)
    assert not score.alarm and not score.in_range and score.p == 1.0
    assert score.sentence() == "outside the calibrated range (3 tokens): not judged"
