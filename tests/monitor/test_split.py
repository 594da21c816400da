import numpy as np

from metastable.monitor.split import PARTS, shares, split


def test_documents_stay_whole_and_every_text_is_used_once() -> None:
    documents = [i // 3 for i in range(900)]
    parts = split(documents, 0)
    assert sorted(np.concatenate(list(parts.values()))) == list(range(900))
    held = [{documents[i] for i in part} for part in parts.values()]
    assert all(not a & b for k, a in enumerate(held) for b in held[:k])
    for name, part in parts.items():
        assert abs(len(part) / 900 - PARTS[name]) < 0.01


def test_the_seed_decides() -> None:
    documents = list(range(100))
    assert np.array_equal(split(documents, 1)["fit"], split(documents, 1)["fit"])
    assert not np.array_equal(split(documents, 1)["fit"], split(documents, 2)["fit"])


def test_few_texts_give_more_to_the_last_part() -> None:
    assert shares(2000) == PARTS
    assert shares(300)["recalibration"] == 0.4
    assert shares(100)["recalibration"] == 0.4
    for count in (60, 100, 400, 10_000):
        assert abs(sum(shares(count).values()) - 1) < 1e-12


def test_one_calibration_of_a_thousand_texts_keeps_its_rates() -> None:
    """Given one calibration, false alarms have a rate that is Beta(k, m + 1 - k), k = floor(r (m + 1)), whatever
    the scores are: with too few texts in the last part it misses its window by chance alone."""
    from scipy.stats import beta

    m = len(split(list(range(1000)), 0)["recalibration"])
    for rate, low, high, sure in ((0.05, 0.02, 0.08, 0.98), (0.01, 0.002, 0.025, 0.95)):
        k = int(rate * (m + 1))
        realised = beta(k, m + 1 - k)
        assert realised.cdf(high) - realised.cdf(low) > sure
