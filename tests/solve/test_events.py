"""Events: a crossing is found, in time and direction."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad

import metastable as ms
from metastable.errors import InvalidInput
from metastable.solve.events import Crossing, crossing
from metastable.solve.problem import State, Step
from small_runs import equiangular, flow, identity


def test_event_records_and_stops():
    x0 = ms.sphere.uniform(12, 2, seed=1)
    level = ms.Event(lambda x, m: (x[:, 0].abs() * m).sum(), level=0.9, direction=1, name="aligned")
    path = ms.solve(flow(), x0, 3.0, events=[level], times=[0.0, 3.0])
    (hit,) = path.events
    assert (hit.name, hit.direction) == ("aligned", 1)
    at_hit = ms.solve(flow(), x0, hit.time).end
    assert float((at_hit.points[:, 0].abs() * at_hit.mass).sum()) == pytest.approx(0.9, abs=1e-7)
    stopped = ms.solve(flow(), x0, 3.0, times=31, events=[ms.Event(level.observable, 0.9, stop=True)])
    assert stopped.end_time == pytest.approx(hit.time, abs=1e-9)
    assert float(stopped.times[-1]) <= stopped.end_time < 3.0
    assert len(stopped.points) == len(stopped.times)
    downwards = ms.Event(level.observable, 0.9, direction=-1)
    assert ms.solve(flow(), x0, 3.0, events=[downwards]).events == ()
    for method in ("rk4", "euler"):
        again = ms.solve(flow(), x0, 3.0, events=[level], method=method, step=0.005).events[0]
        assert again.time == pytest.approx(hit.time, abs=0.02)


def equiangular_time(n, beta, g_end):
    """t(g) = int_0^g dg/g' for softmax attention."""

    def slowness(g):
        return (math.exp(beta) + (n - 1) * math.exp(beta * g)) / (
            2 * math.exp(beta * g) * (1 - g) * ((n - 1) * g + 1)
        )

    return quad(slowness, 0, g_end, epsabs=1e-12)[0]


def test_b4_times_of_the_phase_diagram():
    n = 32
    half_times = {0.0: 1.748254, 1.0: 1.819935, 4.0: 3.431732}
    for beta, t_half in half_times.items():
        half = ms.Event(lambda x, m: x[0] @ x[1], level=0.5, stop=True, name="half")
        path = ms.solve(ms.SelfAttention(identity(n), beta), equiangular(n, 0.0), 10.0, events=[half])
        assert path.events[0].time == pytest.approx(t_half, abs=1e-6)
        assert path.end_time == path.events[0].time
        assert path.events[0].time == pytest.approx(equiangular_time(n, beta, 0.5), abs=1e-8)


def test_event_of_a_stepping_observable_is_located_inside_the_step():
    tokens = ms.sphere.from_angles(np.linspace(0, 2, 12))

    def stop(level):
        event = ms.Event(lambda x, m: ms.observe.cluster_count(x, 0.1), level=level, direction=-1, stop=True)
        return ms.solve(ms.SelfAttention(identity(2), 1.0), tokens, 20.0, events=[event])

    assert stop(1).end_time == pytest.approx(stop(1.5).end_time, abs=1e-9)


@pytest.mark.parametrize(("direction", "found"), [(0, 1), (1, 1), (-1, None)])
def test_a_crossing_of_a_known_curve(direction, found):
    """x_0 = t^2 crosses 2 at sqrt(2), upwards."""
    start, end = (State(t, torch.full((1, 1), t * t, dtype=torch.float64)) for t in (1.0, 2.0))
    step = Step(start, end, lambda times: [torch.full((1, 1), t * t, dtype=torch.float64) for t in times])
    hit = crossing(ms.Event(lambda x, m: x[0, 0], 2.0, direction), step, -1.0, 2.0, torch.ones(1))
    assert (hit and hit.direction) == found
    if hit is not None:
        assert hit.time == pytest.approx(math.sqrt(2), abs=1e-11)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"observable": "3"}, "observable must be a function, got '3'"),
        ({"observable": None}, "observable must be a function"),
        ({"observable": lambda x: 0.0}, r"observable must be a function of \(points, mass\)"),
        ({"observable": int}, r"observable must be a function of \(points, mass\)"),
        ({"direction": 2}, "direction must be -1, 0 or 1, got 2"),
        ({"direction": "up"}, "direction must be an integer, got 'up'"),
        ({"level": "high"}, "level must be a number, got 'high'"),
        ({"level": math.nan}, "level must be finite"),
        ({"level": [1.0]}, "level must be a number"),
        ({"stop": 1}, "stop must be True or False, got 1"),
        ({"name": 3}, "name must be a text, got 3"),
    ],
)
def test_bad_events(arguments, said):
    with pytest.raises(InvalidInput, match=said):
        ms.Event(**({"observable": lambda x, m: 0.0} | arguments))


def test_what_is_no_number_or_no_call_is_told():
    for observable, said in (
        (lambda x, m: None, "event 'odd' must return a number, got None"),
        (lambda x, m: x, "event 'odd' must return a number, got an array"),
        (math.hypot, "event 'odd' must take"),
    ):
        with pytest.raises(InvalidInput, match=said):
            ms.solve(flow(), ms.sphere.uniform(3, 2, seed=1), 0.1, events=[ms.Event(observable, name="odd")])

    def own(x, m):
        raise TypeError("my own")

    with pytest.raises(TypeError, match="my own"):
        ms.solve(flow(), ms.sphere.uniform(3, 2, seed=1), 0.1, events=[ms.Event(own)])


def test_an_event_says_what_it_is():
    assert repr(ms.Event(lambda x, m: 0.0, 0.5, -1, name="half")) == "Event('half' crosses 0.5 downwards)"
    assert repr(ms.solve(flow(), ms.sphere.uniform(3, 2, seed=1), 0.0)).count("\n") == 0
    described = ms.Event(math.dist, 0.5, 1).describe()
    assert described["observable"]["name"] == "dist" and described["level"] == 0.5


@pytest.mark.parametrize("wrong", [(3, 0.0, 1), ("a", "b", 1), ("a", 0.0, 2), ("a", math.nan, 1)])
def test_a_crossing_is_a_name_a_time_and_a_direction(wrong):
    with pytest.raises(InvalidInput):
        Crossing(*wrong)
