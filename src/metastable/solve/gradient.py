"""`gradient`: derivatives of a function of the last tokens of a run, by the adjoint of the steps that it made."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import OneLine, instance, integer, number
from metastable.errors import InvalidInput
from metastable.flows.flow import Flow
from metastable.flows.plan import Plan
from metastable.flows.pullback import HeadCotangent
from metastable.measure import Measure
from metastable.rowwise import project_tangent
from metastable.solve.adjoint import record, transpose
from metastable.solve.arguments import initial_measure, interval, positive, time_scale, tolerances
from metastable.solve.embedded import EmbeddedPair
from metastable.solve.growth import Growth
from metastable.solve.ledger import Ledger
from metastable.solve.loss import Loss
from metastable.solve.methods import choose_stepper
from metastable.solve.observer import Audience, Run
from metastable.solve.problem import Problem, State, Step
from metastable.solve.progress import progress_observers
from metastable.solve.recording import Recording, Tape
from metastable.solve.runge_kutta import RungeKutta, runge_kutta
from metastable.solve.small_transpose import SmallTranspose, small_transpose
from metastable.solve.sorted_transpose import SortedTranspose, sorted_transpose
from metastable.solve.stepper import Stepper
from metastable.solve.stretches import refuse_endless, steps
from metastable.solve.trace import BALANCE, COMPILED_BALANCE, Interval, Segment, Trace
from metastable.solve.wide_transpose import WideTranspose, wide_transpose

NEGLIGIBLE = 1e-90
"""Cotangents smaller than this part of the largest at the end are zero: their products with weights of attention,
2^-700 at least, would be subnormal numbers, on which processors take several times as long."""


@dataclass(frozen=True, eq=False, repr=False)
class Gradient(OneLine):
    """The derivatives of a number, loss(x(t)), with respect to all that the run began with.

    V, B: (d, d); of scheduled weights (L, d, d), one for each of the L stretches between their breakpoints (their
    layers, where they have some): the derivative with respect to a matrix that is added to V or B throughout the
    stretch. Weights in factors count as their products. beta: a number. Of a `MultiHead`, V and B have a leading
    axis of heads, or are a tuple where schedules of heads have different lengths, and beta is (H,). None where
    torch differentiates a flow whose weights it does not know.
    """

    value: float
    V: Any
    B: Any
    beta: Any
    points: Float[Tensor, "n d"]
    """With respect to the tokens at the start: tangent to the sphere, one row per token."""
    end: Measure
    """The last tokens."""
    steps: int
    """Accepted steps of the run."""

    def __post_init__(self) -> None:
        number(self.value, "value")
        for name in ("V", "B"):
            instance(getattr(self, name), name, (Tensor, tuple, type(None)), "a tensor, a tuple of tensors or None")
        instance(self.points, "points", Tensor, "a tensor")
        instance(self.end, "end", Measure, "a Measure")
        integer(self.steps, "steps", least=0)


def gradient(
    flow: Flow,
    rho0: Measure | Any,
    t: float,
    loss: Callable[[Tensor], Tensor],
    method: str | Stepper = "auto",
    rtol: float = 1e-8,
    atol: float = 1e-10,
    progress: bool | Callable[[float, int], Any] = False,
    *,
    step: float | None = None,
    max_step: float | None = None,
    max_steps: int | None = None,
    t0: float = 0.0,
) -> Gradient:
    """dL/dV, dL/dB, dL/dbeta and dL/dx(t0) of L = loss(x(t)), x_i' = v_i(t, x), from one run and its adjoint.

    loss: points (n, d) -> a number, by torch operations, which torch differentiates; it is tried on the first
        tokens. The other arguments are those of `solve`.
    method: one with a table: "dop853", "adaptive", "rk4", "euler"; "auto" takes dop853 also where `solve` knows a
        closed solution.
    max_step: with one, the run has the digits of `solve` with the same. Without, it may have more steps: where
        tokens rest, any step is right for them, but a derivative still grows, and steps that do not resolve its
        growth are cut (see `Growth`).

    The adjoint is that of the accepted steps, each taken back stage by stage, with their lengths as they were
    chosen: the exact derivative of the numbers that were computed, to rounding. It takes the time of two to five
    runs (benchmarks/gradient.py) and memory for O(sqrt(steps)) copies of the tokens: the last steps are taken back
    as they were made, those before are made again from a few states. What a contracting flow leaves of a cotangent
    below 1e-90 of the largest at the end is zero.

    Attention is differentiated over all pairs, whatever kernel computed it; to the tolerance that kernels have in
    this run on the circle by Fourier series, in O(n), where queries look at keys (`attention.circle.adjoint`), and
    on S^2 from 400 tokens on by spherical harmonics, over the pairs that count (`attention.nearby.adjoint`), or by
    a grid (`attention.sphere.adjoint`).
    Tokens are taken in float64; masses and the `log_scale` of unnormalised attention stay fixed. Of a flow from
    outside, whose drift torch can differentiate, there are `points` only. A function as `progress` is told the
    times of the run, and then those of the way back.

    >>> from metastable import AttentionWeights, SelfAttention
    >>> w = AttentionWeights(V=[[1.0, 0.0], [0.0, 1.0]], B=[[1.0, 0.0], [0.0, 1.0]])
    >>> found = gradient(SelfAttention(w, beta=0.0), [[1.0, 0.0], [0.0, 1.0]], 1.0, lambda x: x[0] @ x[1])
    >>> abs(float(found.V.trace()) - 1 / math.cosh(1.0) ** 2) < 1e-7  # V = c I: tanh(c), whose slope is sech(1)^2
    True
    """
    rho = initial_measure(flow, rho0, torch.float64)
    t0, t = interval(t0, t)
    rtol, atol = tolerances(rtol, atol)
    step, longest = positive(step, "step"), positive(max_step, "max_step") or math.inf
    max_steps = None if max_steps is None else integer(max_steps, "max_steps", least=1)
    of_end = Loss(loss, rho.points)
    audience = Audience(progress_observers(progress))
    prepared = flow.for_run(Plan(t0, t, rtol, atol, step))
    stepper, table = _differentiable(prepared, method, step, rtol + atol)
    h = stepper.step_size(step, t - t0, False)
    if max_steps is None and (shortest := h or max_step) is not None:
        refuse_endless(t - t0, shortest)
    least = 4 * torch.finfo(torch.float64).eps
    given = prepared, rho.mass, max(rtol, least), atol, h, min(longest, time_scale(prepared))
    problem = Problem(*given)
    compiled = small_transpose(problem, rho.points, table)
    if compiled is None and rho.points.is_cpu:
        problem = Recording(*given, count=len(table.nodes))
    ledger = Ledger(problem.pullback(t0, rho.points), rho.points)
    trace = Trace(BALANCE if compiled is None else COMPILED_BALANCE)
    state = State(t0, rho.points)
    whole: SortedTranspose | WideTranspose | None = None
    if compiled is None:
        whole = sorted_transpose(problem, rho.points, table) or wide_transpose(problem, rho.points, table)
    growth = Growth(problem, table, whole) if max_step is None and h is None else None
    try:
        audience.begin(Run(prepared, rho.mass, state, t, (t0, t), stepper.name))
        if growth is not None:
            growth.bound_step(state, t - t0)
        for made in steps(problem, stepper, state, t, max_steps, t_start=t0, bounded=max_steps is not None):
            trace.add(problem, made, problem.tape(made) if isinstance(problem, Recording) else None)
            state = made.end
            if growth is not None and state.t < t:
                growth.bound_step(state, t - state.t)
            audience.show(made)
        value, cotangent = of_end.at(state.points)
        negligible = NEGLIGIBLE * float(cotangent.abs().max())
        for segment in trace.segments():
            steps_back = _steps_back(problem, stepper, table, compiled or whole, segment)
            for each in reversed(segment.intervals):
                before, cotangent, of_weights = steps_back(cotangent)
                cotangent = torch.nn.functional.hardshrink(cotangent, negligible)
                ledger.add((each.start + each.end) / 2, of_weights)
                audience.show(Step.at_rest(State(each.start, before, accepted=state.accepted)))
    finally:
        audience.end(None)
    if prepared.spherical:
        cotangent = project_tangent(rho.points, cotangent)
    end = Measure(state.points, rho.mass, sphere=prepared.spherical)
    return Gradient(value, *ledger.totals(), cotangent, end, state.accepted)


def _steps_back(
    problem: Problem,
    stepper: Stepper,
    table: RungeKutta,
    compiled: SmallTranspose | SortedTranspose | WideTranspose | None,
    segment: Segment,
) -> Callable[[Tensor], tuple[Tensor, Tensor, list[Sequence[HeadCotangent]]]]:
    """Make the steps of a segment again that are not known; what comes back takes them back, the last one first.

    From cotangents after a step it gives the tokens before it, their cotangents, and those of the weights.
    """
    points, intervals, known = segment
    if not isinstance(compiled, SmallTranspose):
        tapes: list[Tape] = []
        for each in intervals[: len(intervals) - len(known)]:
            tapes.append(_again(problem, stepper, points, each) or record(problem, table, points, each))
            points = tapes[-1].points
        tapes += known
        known.clear()

        def by_stages(cotangent: Tensor) -> tuple[Tensor, Tensor, list[Sequence[HeadCotangent]]]:
            tape = tapes.pop()
            before = tape.stages[0].points
            if compiled is not None:
                return before, *compiled.step_back(tape, cotangent)
            return before, *transpose(problem, table, tape, cotangent)

        return by_stages
    starts = [points]
    lengths = [each.end - each.start for each in intervals]
    for h in lengths[:-1]:
        starts.append(compiled.end(starts[-1], h))

    def as_wholes(cotangent: Tensor) -> tuple[Tensor, Tensor, list[Sequence[HeadCotangent]]]:
        before = starts.pop()
        problem.evaluations += len(table.nodes)
        found, heads = compiled.back(before, lengths.pop(), cotangent)
        return before, found, [heads]

    return as_wholes


def _again(problem: Problem, stepper: Stepper, points: Float[Tensor, "n d"], interval: Interval) -> Tape | None:
    """A step made again as the run made it; None where nobody remembers its stages."""
    if not (isinstance(problem, Recording) and isinstance(stepper, EmbeddedPair)):
        return None
    interval.enter(problem)
    problem.pullback(interval.start, points)
    start = State(interval.start, points)
    made = Step(start, State(interval.end, stepper.again(problem, start, interval.end)), lambda times: [])
    return problem.tape(made)


def _differentiable(
    flow: Flow, method: str | Stepper, step: float | None, tolerance: float
) -> tuple[Stepper, RungeKutta]:
    """The stepper of the run with its table; "auto" takes a pair where a closed solution has none."""
    if not flow.smooth:
        raise InvalidInput(f"the field of {type(flow).__name__} jumps, so that its paths have no derivative")
    stepper = choose_stepper(flow, method, step, tolerance)
    table = runge_kutta(stepper)
    if table is None and isinstance(method, str) and method == "auto":
        stepper = choose_stepper(flow, "dop853" if step is None else "rk4", step)
        table = runge_kutta(stepper)
    if table is None:
        raise InvalidInput(
            f"method {stepper.name!r} has no derivative here; choose from auto, dop853, adaptive, rk4, euler"
        )
    return stepper, table
