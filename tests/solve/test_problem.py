"""Steps: what is between their ends, where they are cut, and times that only rounding separates."""

import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput, SolveError
from metastable.solve.problem import Problem, State, Step, cubic_hermite, next_time, reached, require_finite


def straight():
    """A step from 1 to 3 along a straight line."""
    start, end = (
        State(1.0, torch.tensor([[1.0, 1.0]])),
        State(3.0, torch.tensor([[3.0, 3.0]]), accepted=7, rejected=2),
    )
    return Step(start, end, lambda times: [torch.full((1, 2), float(t)) for t in times])


def test_the_tokens_of_a_step():
    step = straight()
    inside, end = step.at([2.0, 3.0])
    assert inside.tolist() == [[2.0, 2.0]]
    assert end is step.points is step.end.points
    assert step.at([]) == []
    assert (step.t, step.ended) == (3.0, False)


def test_a_cut_step_ends_where_it_is_cut():
    cut = straight().cut(1.5)
    assert (cut.t, cut.ended, cut.points.tolist()) == (1.5, True, [[1.5, 1.5]])
    assert (cut.end.accepted, cut.end.rejected) == (7, 2)
    whole = straight().cut(3.0)
    assert whole.ended and whole.t == 3.0


def test_a_step_of_length_zero():
    state = State(2.0, torch.eye(2))
    assert Step.at_rest(state).at([0.0, 2.0])[0] is state.points


def test_a_cubic_is_interpolated_exactly():
    """x(t) = t^3 - t on a line in R^2, from its values and slopes at both ends."""

    class Free(ms.Flow):
        d, spherical = 2, False

        def drift(self, t, points, mass):
            return points

    def row(value):
        return torch.tensor([[value, -value]], dtype=torch.float64)

    problem = Problem(Free(), torch.ones(1).double(), 1e-8, 1e-10, None, 1.0)
    start, end = State(0.0, row(0.0), slope=row(-1.0)), State(2.0, row(6.0))
    for t in (0.3, 1.0, 1.9):
        (frame,) = cubic_hermite(problem, start, end, lambda: row(11.0))([t])
        assert torch.allclose(frame, row(t**3 - t), atol=1e-14)


def test_a_limit_that_rounding_separates_is_met():
    assert next_time(0.0, 0.1, 1.0) == 0.1
    assert next_time(0.9, 0.1, 1.0) == 1.0
    assert next_time(0.9, 0.1 - 1e-12, 1.0) == 1.0
    assert next_time(0.95, 0.1, 1.0) == 1.0


def test_the_field_at_a_jump_is_the_one_before_it():
    first, second = (ms.AttentionWeights(V=s * torch.eye(2), B=torch.eye(2)) for s in (1.0, 5.0))
    layered = ms.SelfAttention(ms.Schedule.layers([first, second], 2.0), 0.0)
    rho = ms.Measure(ms.sphere.from_angles([0.0, 1.0]))
    problem = Problem(layered, rho.mass, 1e-8, 1e-10, None, 1.0, stretch_end=1.0)
    assert torch.equal(problem.velocity(1.0, rho.points).vector, problem.velocity(0.5, rho.points).vector)
    assert problem.evaluations == 2


def test_tokens_must_stay_finite():
    require_finite(torch.ones(2, 2), 1.0, "rk4")
    with pytest.raises(SolveError, match="token 0 is not finite any more at t = 1 with method 'rk4'"):
        require_finite(torch.tensor([[float("inf"), 0.0]]), 1.0, "rk4")


def test_a_time_that_only_rounding_separates_is_reached():
    assert reached(1.0, 1.0) and reached(0.3, 0.1 + 0.2) and reached(0.1 + 0.2, 0.3)
    assert not reached(1.0, 1.0 + 1e-12) and not reached(0.0, 1e-300)


def test_the_token_that_is_not_finite_is_named():
    class Own(ms.Flow):
        d = 2

        def drift(self, t, points, mass):
            field = points.roll(1, 1)
            if t > 0.4:
                field[3, 1] = float("nan")
            return field

    for method in ("adaptive", "dop853", "rk4", "euler"):
        with pytest.raises(
            SolveError, match=r"the velocity of token 3 is not finite at t = 0\.4\d*; .* Own returned"
        ):
            ms.solve(Own(), ms.sphere.uniform(6, 2, seed=1), 1.0, method=method)


def test_the_parts_of_a_run_say_what_they_are():
    state = State(0.5, torch.eye(2), accepted=3)
    flow = ms.ZeroTemperature(ms.AttentionWeights(V=torch.eye(2), B=torch.eye(2)))
    assert repr(state) == "State(t = 0.5, 2 tokens in R^2, 3 steps)"
    assert repr(straight().cut(2.0)) == "Step(t = 1 .. 2, 1 tokens in R^2, the last)"
    assert repr(Problem(flow, torch.ones(2), 1e-8, 1e-10, 0.1, 1.0)) == (
        "Problem(ZeroTemperature, rtol=1e-08, atol=1e-10, step=0.1)"
    )


@pytest.mark.parametrize(
    "made",
    [
        lambda: State("0", torch.eye(2)),
        lambda: State(0.0, [[1.0]]),
        lambda: State(0.0, torch.ones(2)),
        lambda: Step(None, None, None),
        lambda: Problem(3, torch.ones(2), 1e-8, 1e-10, None, 1.0),
        lambda: Problem(3, torch.ones(2), -1.0, 1e-10, None, 1.0),
    ],
)
def test_parts_that_do_not_fit_are_refused(made):
    with pytest.raises(InvalidInput):
        made()
