import pytest

from metastable.papers.chaos.descent import DIRECTIONS, ITERATIONS, RATE, TASKS, hopf_nodes, infinite, learnt
from metastable.theory import weight_derivative
from small_claims import small_verdict


def test_the_first_step_is_the_closed_derivative():
    """Uniform context, V = I: dx/da by X6; central differences with a step of 0.05 are off by 1e-3."""
    start, wanted = learnt()
    task = TASKS[0]
    way = infinite(task, start, wanted)
    for place, direction in enumerate(DIRECTIONS):
        moved = weight_derivative(start, direction, task.t, task.beta)
        expected = RATE * float((moved * wanted).sum(1).mean())
        assert way[1, place] == pytest.approx(expected, rel=5e-3, abs=5e-5)
    assert way.shape == (ITERATIONS + 1, 2)


def test_nodes_integrate_polynomials():
    """E x_1^2 = 1/4, E x_1^2 x_3^2 = 1/24, E x_1^4 = 1/8 on S^3; the tilted law has a mean along its axis."""
    rho = hopf_nodes(TASKS[0].law)
    x = rho.points
    found = [float(rho.mass @ y) for y in (x[:, 0] ** 2, x[:, 0] ** 2 * x[:, 2] ** 2, x[:, 0] ** 4)]
    assert found == pytest.approx([1 / 4, 1 / 24, 1 / 8], abs=1e-12)
    assert float((hopf_nodes(TASKS[1].law).mass @ hopf_nodes(TASKS[1].law).points)[1]) == pytest.approx(0.15)


@pytest.mark.slow
def test_more_nodes_change_the_descent_by_less_than_any_gap():
    for task in TASKS:
        few, many = (infinite(task, *learnt(), *size)[-1] for size in ((), (8, 14)))
        assert few == pytest.approx(many, abs=3e-4)
    assert min(row["largest rms gap"] for row in small_verdict("descent-uniform").table) > 20 * 3e-4


def test_the_gap_stays_of_one_order_over_the_steps():
    rows = small_verdict("descent-uniform").table
    assert len(rows) == 10 and all(row["last gap over largest"] > 0.5 for row in rows)
