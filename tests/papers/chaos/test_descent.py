import numpy as np
import pytest

from metastable.papers.chaos.descent import ITERATIONS, RATE, TASKS, infinite, learnt
from metastable.theory import weight_derivative
from small_claims import small_verdict


def test_the_first_step_is_the_closed_derivative():
    """Uniform context, V = I: dx/da by X6; central differences with a step of 0.05 are off by 1e-3."""
    start, wanted = learnt()
    task = TASKS[0]
    way = infinite(task, start, wanted)
    stretch, turn = np.diag([1.0, -1.0, 0.0]), np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    for place, direction in enumerate((stretch, turn)):
        moved = weight_derivative(start, direction, task.t, task.beta)
        expected = RATE * float((moved * wanted).sum(1).mean())
        assert way[1, place] == pytest.approx(expected, rel=5e-3)
    assert way.shape == (ITERATIONS + 1, 2)


def test_the_gap_stays_of_one_order_over_the_steps():
    rows = small_verdict("descent-uniform").table
    assert len(rows) == 6 and all(row["last gap over largest"] > 0.5 for row in rows)
