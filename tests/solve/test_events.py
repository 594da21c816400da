"""Events: a crossing is found, in time and direction."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad

import metastable as ms
from metastable.errors import InvalidInput
from metastable.solve.events import crossing
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


def test_bad_events():
    with pytest.raises(InvalidInput, match="direction must be -1, 0 or 1, got 2"):
        ms.Event(lambda x, m: 0.0, direction=2)
    with pytest.raises(InvalidInput, match="level must be a number, got 'high'"):
        ms.Event(lambda x, m: 0.0, level="high")
