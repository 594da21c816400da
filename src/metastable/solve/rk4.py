"""The classical Runge-Kutta method on the sphere, order 4, fixed step."""

from __future__ import annotations

from dataclasses import replace

from metastable.solve.problem import Problem, State, Step, cubic_hermite, next_time, require_finite


class RK4:
    """Four stages in the ambient space, the field seeing each of them normalised, then one retraction.

    The 0-homogeneous extension of the field conserves |x| along exact solutions, so that the retractions cost no
    order.
    """

    name = "rk4"
    order = 4

    def begin(self, problem: Problem, state: State) -> State:
        """Evaluate the field at the start."""
        return replace(state, slope=problem.velocity(state.t, state.points).vector)

    def advance(self, problem: Problem, state: State, limit: float) -> Step:
        """One step of the fixed size."""
        assert problem.step is not None and state.slope is not None
        t = next_time(state.t, problem.step, limit)
        h, x, k1 = t - state.t, state.points, state.slope
        k2 = problem.velocity(state.t + h / 2, problem.retract(x + h / 2 * k1)).vector
        k3 = problem.velocity(state.t + h / 2, problem.retract(x + h / 2 * k2)).vector
        k4 = problem.velocity(t, problem.retract(x + h * k3)).vector
        points = problem.retract(x + h / 6 * (k1 + 2 * (k2 + k3) + k4))
        require_finite(points, t, self.name)
        slope = problem.velocity(t, points).vector
        end = replace(state, t=t, points=points, slope=slope, accepted=state.accepted + 1)
        return Step(state, end, cubic_hermite(problem, state, end, slope))
