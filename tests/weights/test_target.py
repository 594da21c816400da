import math

import numpy as np
import pytest
import torch

from metastable.errors import InvalidInput
from metastable.weights import Target
from metastable.weights.target import symmetric_heads


def published(t, h, heads, d):
    """The targets as [arXiv:2605.18870] writes them."""
    s = t + 2 * math.pi * h / heads
    if d == 2:
        return [[2 + 1.5 * math.cos(s), math.sin(2 * s)], [math.sin(2 * s), 2 - 1.5 * math.cos(s)]]
    if d == 3:
        a, b, c = math.sin(2 * s), math.sin(s), math.cos(2 * s)
        return [
            [2 + 1.5 * math.cos(s), a, b],
            [a, 2 + 1.5 * math.sin(s), c],
            [b, c, 2 + 1.5 * math.cos(s + math.pi / 4)],
        ]
    matrix, pair = np.diag([2 + 1.5 * math.cos(s + 2 * math.pi * i / d) for i in range(d)]), 0
    for i in range(d):
        for j in range(i + 1, d):
            matrix[i, j] = matrix[j, i] = math.sin(2 * s + 2 * math.pi * pair / (d * (d - 1) / 2))
            pair += 1
    return matrix


@pytest.mark.parametrize(("d", "heads"), [(2, 1), (2, 3), (3, 1), (3, 10), (5, 4)])
def test_the_published_targets(d, heads):
    target = Target.oscillating(d, heads)
    for t in (0.0, 0.7, 12.3):
        for h in range(heads):
            assert target(t)[h].numpy() == pytest.approx(np.array(published(t, h, heads, d)), abs=1e-13)


@pytest.mark.parametrize("target", [Target.oscillating(2, 3), Target.oscillating(4, 2), Target.resting(3, 2)])
def test_the_response_solves_its_equation(target):
    """p' = A - p, by a central difference of error h^2."""
    for t in (0.0, 1.3, 7.0):
        slope = (target.response(t + 1e-5) - target.response(t - 1e-5)) / 2e-5
        assert (slope - (target(t) - target.response(t))).abs().max() < 1e-9


def test_many_times_at_once():
    target, times = Target.oscillating(3, 4), torch.tensor([0.1, 0.2, 5.0], dtype=torch.float64)
    assert torch.equal(target(times)[1], target(0.2)) and torch.equal(
        target.response(times)[2], target.response(5.0)
    )
    assert target(times).shape == (3, 4, 3, 3)


def test_a_matrix_that_is_not_symmetric_is_refused_in_a_sentence():
    with pytest.raises(
        InvalidInput, match=r"D must be symmetric, as the energy needs it, but head 1 differs .* by 2"
    ):
        symmetric_heads([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 2.0], [0.0, 1.0]]], "D")
    rounded = torch.tensor([[1.0, 2.0 + 1e-14], [2.0, 1.0]], dtype=torch.float64)
    kept = symmetric_heads(rounded, "D")
    assert kept.shape == (1, 2, 2) and torch.equal(kept, kept.mT)


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: Target.resting(1), "d must be >= 2"),
        (lambda: Target.resting(2, 0), "heads must be >= 1"),
        (lambda: Target.oscillating(2, 10**400), "more than memory holds"),
        (lambda: Target.oscillating("3"), "d must be an integer"),
        (lambda: Target.resting(2)(math.nan), "t must be a finite time"),
        (lambda: Target.resting(2).response("3"), "t must be an array of real numbers"),
        (lambda: symmetric_heads([[1.0, math.nan], [0.0, 1.0]], "D"), "D must be finite"),
        (lambda: symmetric_heads(np.zeros((2, 3)), "D"), r"D must be matrices of shape \(H, d, d\)"),
        (lambda: Target(np.eye(2), np.eye(2), np.eye(2), np.eye(2)), "amplitude of a target must be"),
        (
            lambda: Target(np.eye(2), np.zeros((1, 2, 2)), [[1.0, 2.0], [0.0, 1.0]], np.zeros((1, 2, 2))),
            "symmetric",
        ),
    ],
)
def test_bad_input_is_refused_with_a_sentence(build, match):
    with pytest.raises(InvalidInput, match=match) as refused:
        build()
    assert len(str(refused.value)) < 200


def test_what_they_are_in_one_line():
    assert repr(Target.resting(3, 2)) == "Target(resting, 2 heads, d=3)"
    assert repr(Target.oscillating(2)) == "Target(oscillating, 1 heads, d=2)"
