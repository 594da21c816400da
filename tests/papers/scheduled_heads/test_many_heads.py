import numpy as np
import pytest

from metastable.papers import ESTIMATE, Outcome
from metastable.papers.scheduled_heads.many_heads import CLAIMS, heads_figure
from small_claims import small_verdict


def test_only_the_law_of_random_weights_is_the_paper_s():
    assert {claim.name: claim.source for claim in CLAIMS if claim.source != ESTIMATE} == {
        "dissipation-random-heads": "arXiv:2605.18870"
    }


def test_what_oscillating_heads_leave_falls_with_time_and_not_with_their_number():
    verdict = small_verdict("dissipation-oscillating-heads", "scheduled-heads")
    assert all(row["last quarter"] < 0.6 * row["third quarter"] for row in verdict.table)


def test_the_law_is_drawn_through_the_fitted_heads():
    heads = np.array([16.0, 32.0, 64.0])
    curves = {"H": heads, "G2": 2 / heads, "paths": np.stack([2 / heads, 2 / heads])}
    each, mean, law = heads_figure(Outcome(-1.0, curves=curves), "title", -1.0, "1/H").series
    assert len(each.x) == 6 and mean.colour == law.colour
    assert law.y == pytest.approx(2 / np.asarray(law.x), rel=1e-12)


def test_what_noise_adds_is_read_without_what_oscillation_leaves():
    plain, less = (
        small_verdict(f"dissipation-{name}-heads", "scheduled-heads")
        for name in ("oscillating", "noisy-oscillating")
    )
    assert all(a["mean of G²"] > b["mean of G²"] for a, b in zip(less.table, plain.table, strict=True))
