"""What may be passed to `solve`: every mistake is one sentence."""

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput
from metastable.solve.arguments import save_times, tolerances
from small_runs import flow, short_run, weights

X0 = ms.sphere.uniform(9, 2, seed=4)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"t": -1.0}, "t must be finite and >= 0, got -1.0"),
        ({"t": float("nan")}, "t must be finite"),
        ({"t": "soon"}, "t must be a number"),
        ({"times": [0.0, 1.0, 0.5]}, "strictly increasing"),
        ({"times": [0.0, 3.0]}, r"\[0, t\] = \[0, 2\]"),
        ({"times": []}, "at least one time"),
        ({"times": 1}, "must be >= 2"),
        ({"method": "magic"}, "unknown method 'magic'; choose from auto, adaptive, dop853, rk4, euler, exact"),
        ({"method": "exact"}, "solves ZeroTemperature flows"),
        ({"method": "rk4", "step": -0.1}, "step must be > 0"),
        ({"method": "adaptive", "step": 0.1}, "chooses its own steps"),
        ({"rtol": -1.0}, "rtol must be >= 0, got -1.0"),
        ({"rtol": 0.0, "atol": 0.0}, "not both be 0"),
        ({"dtype": torch.int32}, "dtype must be"),
        ({"rho0": torch.ones(3, 3)}, "dimension 3 but the flow's weights have dimension 2"),
        ({"rho0": [[1.0, float("nan")]]}, "NaN"),
        ({"rho0": [[1.0, 0.0], [0.0, 0.0]]}, "zero row 1"),
        ({"rho0": [1.0, 0.0]}, r"shape \(n, d\)"),
        ({"flow": 3}, "flow must be a Flow"),
        ({"events": None}, "events must be a sequence of Events, got None"),
        ({"observers": None}, "observers must be a sequence of Observer"),
        ({"out": 5}, "out must be a path, got 5"),
        ({"out": ""}, "out must be a path, got ''"),
        ({"checkpoint_every": "a"}, "checkpoint_every must be a number"),
        ({"checkpoint_every": -1.0}, "checkpoint_every must be >= 0"),
        ({"resume": "trust"}, "resume must be True or False, got 'trust'"),
        ({"max_steps": 1.5}, "max_steps must be an integer"),
        ({"max_step": float("nan")}, "max_step must be finite"),
        ({"times": 2**63}, f"must be <= {2**24}"),
        ({"times": 2.0}, "times must be one row of numbers or a number of frames"),
        ({"times": [0.0, "1"]}, "times must be numbers"),
        ({"t": 10**400}, "t must fit into a float"),
        ({"t0": 3.0}, "t must be finite and >= t0 = 3, got 2.0"),
        ({"t0": None}, "t0 must be a number"),
        ({"t0": -1e308, "t": 1e308}, "t - t0 must fit into a float"),
        ({"t0": 1.0, "times": [0.5, 2.0]}, r"times must lie in \[1, t\] = \[1, 2\]"),
        ({"dtype": "float32"}, "dtype must be"),
        ({"rho0": None}, "points must"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(options, match):
    arguments = {"flow": flow(), "rho0": ms.sphere.uniform(4, 2), "t": 2.0} | options
    with pytest.raises(InvalidInput, match=match):
        ms.solve(**arguments)


def test_numpy_scalars_and_wrong_types(tmp_path):
    path = short_run(out=tmp_path / "n.zarr", seed=np.int64(3), rtol=np.float32(1e-6), max_step=np.float64(0.5))
    assert path.provenance["seed"] == 3
    assert ms.Event(lambda x, m: 0.0, level=np.int64(2)).level == 2.0
    for options, match in (
        ({"rtol": "x"}, "rtol must be a number"),
        ({"seed": 1.5}, "seed must be an integer"),
        ({"events": ms.Event(lambda x, m: 0.0)}, "sequence of Event"),
        ({"times": [[0.0, 1.0]]}, "one row of numbers"),
        ({"times": True}, "one row of numbers"),
    ):
        with pytest.raises(InvalidInput, match=match):
            short_run(**options)
    assert ms.solve(ms.SelfAttention(weights(), 3.0), X0, 0.0, times=5).times.tolist() == [0.0]


def test_save_times_are_given_counted_or_the_ends():
    assert save_times(None, 2.0) == [0.0, 2.0]
    assert save_times(3, 2.0) == [0.0, 1.0, 2.0]
    assert save_times(np.array([0.5, 2.0 + 1e-13]), 2.0) == [0.5, 2.0]
    assert save_times(7, 0.0) == [0.0]
    assert tolerances(np.float32(0.5), 0) == (0.5, 0.0)
    assert save_times(None, 2.0, 1.0) == [1.0, 2.0]
    assert save_times(3, 2.0, -2.0) == [-2.0, 0.0, 2.0]
    assert save_times(torch.tensor([0.5, 1.0]), 2.0) == [0.5, 1.0]


def test_what_sees_the_tokens_cannot_change_those_of_the_caller():
    class Vandal(ms.Flow, ms.Observer):
        """A flow and an observer that write into whatever they are shown."""

        d = 2

        def drift(self, t, points, mass):
            answer = points.roll(1, 1).clone()
            points.mul_(0.5)
            mass.mul_(0.5)
            return answer

        def begin(self, run):
            run.start.points.mul_(0.9)

        def step(self, step):
            step.points[0] = torch.tensor([1.0, 0.0])

    rho = ms.Measure(ms.sphere.uniform(5, 2, seed=1), mass=[1, 2, 3, 4, 5])
    points, mass = rho.points.clone(), rho.mass.clone()
    ms.solve(Vandal(), rho, 0.5, method="rk4", step=0.1)
    tensor = ms.sphere.uniform(5, 2, seed=1)
    ms.solve(Vandal(), tensor, 0.5, method="rk4", step=0.1)
    ms.solve(flow(), rho, 0.5, observers=[Vandal()], method="rk4", step=0.1)
    assert torch.equal(rho.points, points) and torch.equal(rho.mass, mass) and torch.equal(tensor, points)
    path = ms.solve(flow(), rho, 0.5)
    path.mass.zero_()
    path.points.zero_()
    assert torch.equal(rho.points, points) and torch.equal(rho.mass, mass)
