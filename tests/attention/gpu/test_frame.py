"""What the kernels know of a problem before they start."""

from __future__ import annotations

import math

import pytest
import torch

from attention.gpu.problems import cuda, problem
from metastable.attention.gpu.frame import CENTRE, INVERSE_MASS, LOG_MASS, RADIUS, SCALE, Frame, frame_of


def check_frame(case: tuple[torch.Tensor, ...], beta: float) -> None:
    """Every number of the frame by its definition, on the device and on the host."""
    q, k, v, m = case
    frame = frame_of(*case, beta)
    d = k.shape[1]
    radius = float((k - k.mean(dim=0)).norm(dim=1).max())
    value_radius = float((v - v.mean(dim=0)).norm(dim=1).max())
    assert frame.scale == beta * math.log2(math.e) == float(frame.numbers[SCALE])
    assert frame.length == pytest.approx(float(q.norm(dim=1).max()), rel=1e-14)
    assert radius <= frame.radius <= radius * 1.000002
    assert float(frame.numbers[RADIUS]) == pytest.approx(frame.radius, rel=1e-14)
    assert value_radius * (1 - 1e-14) <= frame.value_radius <= value_radius * 1.000002
    assert float(frame.numbers[LOG_MASS]) == pytest.approx(math.log(m.max()), rel=1e-13, abs=1e-14)
    assert float(frame.numbers[INVERSE_MASS]) == pytest.approx(1 / float(m.max()), rel=1e-15)
    assert frame.same == (v is k) and frame.equal == bool((m == m[0]).all())
    centre, value_centre = frame.centres(d)
    assert torch.equal(centre, frame.numbers[CENTRE : CENTRE + d])
    torch.testing.assert_close(centre, k.mean(dim=0), rtol=0, atol=1e-15)
    torch.testing.assert_close(value_centre, v.mean(dim=0), rtol=0, atol=1e-15)


CASES = [
    (10, 30, 2, None, "equal"),
    (300, 3, 3, None, "zeros"),
    (1, 1, 1, None, "equal"),
    (7, 150, 70, 5, "wide"),
    (20, 20, 8, 8, "zeros"),
]


@pytest.mark.parametrize("shape", CASES)
def test_numbers_by_their_definition(emulated: None, shape: tuple[int, int, int, int | None, str]) -> None:
    check_frame(problem(1, *shape[:4], "uniform", shape[4], "cpu"), 3.0)


@cuda
@pytest.mark.parametrize("shape", [*CASES, (100_003, 5000, 3, None, "equal")])
def test_numbers_on_the_card(shape: tuple[int, int, int, int | None, str]) -> None:
    check_frame(problem(1, *shape[:4], "uniform", shape[4]), 3.0)


def test_reach_bounds_every_exponent() -> None:
    """|beta log2(e) <q, k - c>| <= reach by Cauchy and Schwarz."""
    q, k, _, _ = problem(2, 50, 60, 3, None, "line", "equal", "cpu")
    centred = k - k.mean(dim=0)
    lengths = [float(x.norm(dim=1).max()) for x in (q, centred)]
    frame = Frame(torch.zeros(10), True, True, 2.0 * math.log2(math.e), *lengths, lengths[1])
    assert float((2.0 * math.log2(math.e) * q @ centred.T).abs().max()) <= frame.reach * (1 + 1e-15)
