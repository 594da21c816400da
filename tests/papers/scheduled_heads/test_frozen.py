from small_claims import small_verdict


def test_two_opposed_heads_raise_the_energy_under_their_mean_only():
    verdict = small_verdict("frozen-energy-falls", "scheduled-heads")
    mean, gradient = verdict.figure.series
    assert mean.y[-1] > mean.y[0] and gradient.y[-1] < 0.9 * gradient.y[0]


def test_tokens_come_to_rest():
    (row,) = small_verdict("frozen-limits-rest", "scheduled-heads").table
    assert row["median of the largest speed at the end"] < 0.05
