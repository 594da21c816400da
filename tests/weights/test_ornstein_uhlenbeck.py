import math
import pickle

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from metastable.errors import InvalidInput
from metastable.weights import OrnsteinUhlenbeck, Target


@pytest.mark.parametrize("steps", [8, 24, 160])
def test_refinement_keeps_the_path(steps):
    for target in (Target.resting(2, 3), Target.oscillating(3, 2)):
        process = OrnsteinUhlenbeck(target, 2.0, steps, seed=5)
        finer = process.refined(2).refined(4)
        assert finer.steps == 8 * steps
        assert torch.equal(finer.values[::8], process.values)
        assert torch.equal(finer.values, OrnsteinUhlenbeck(target, 2.0, 8 * steps, seed=5).values)


def test_the_seed_and_nothing_else_makes_the_path():
    first, again = (OrnsteinUhlenbeck(Target.resting(3, 2), 1.0, 16, seed=7) for _ in range(2))
    assert torch.equal(first.values, again.values) and first.describe() == again.describe()
    other = OrnsteinUhlenbeck(Target.resting(3, 2), 1.0, 16, seed=8)
    assert not torch.equal(first.values, other.values) and first.describe() != other.describe()
    assert torch.equal(pickle.loads(pickle.dumps(first)).values, first.values)


def test_a_head_is_the_same_however_many_there_are():
    one, four = (OrnsteinUhlenbeck(Target.resting(2, heads), 1.0, 8, seed=3) for heads in (1, 4))
    assert torch.equal(four.values[:, :1], one.values)
    assert (four.values[:, 0] != four.values[:, 1]).all()


def test_without_noise_the_weights_solve_their_equation():
    for d, heads in ((2, 1), (3, 4)):
        target = Target.oscillating(d, heads)
        process = OrnsteinUhlenbeck(target, 6.0, 12, 0.0, seed=2)
        exact = solve_ivp(
            lambda t, y, target=target: (target(t).numpy().ravel() - y),
            (0, 6), process.start.numpy().ravel(), rtol=1e-11, atol=1e-12, t_eval=process.times.numpy(),
        )  # fmt: skip
        assert np.abs(exact.y.T.reshape(process.values.shape) - process.values.numpy()).max() < 1e-9


@pytest.mark.parametrize("steps", [3, 12])
def test_the_law_is_exact_on_any_grid(steps):
    """Variance and covariance of <x, D y> over 40 000 heads, whose standard error is 0.7%; five of them."""
    noise, t, heads = 1.5, 1.2, 40_000
    process = OrnsteinUhlenbeck(Target.resting(2, heads), t, steps, noise, torch.zeros(heads, 2, 2), seed=1)
    x, y = np.array([1.0, 0.0]), np.array([0.6, 0.8])
    score = torch.einsum("i,khij,j->kh", torch.tensor(x), process.values, torch.tensor(y)).numpy()
    size = noise * (1 + float(x @ y) ** 2) / 2
    times = process.times.numpy()
    mean = float(x @ y) * (1 - np.exp(-times))
    assert np.abs(score.mean(1) - mean).max() < 5 * math.sqrt(size / heads)
    fluctuation = score - mean[:, None]
    for k, s in enumerate(times):
        for j in range(k, len(times)):
            expected = size * math.exp(s - times[j]) * (1 - math.exp(-2 * s)) / 2
            found = float((fluctuation[k] * fluctuation[j]).mean())
            assert abs(found - expected) < 5 * size / math.sqrt(2 * heads)


def test_innovations_are_independent_and_of_mean_zero():
    process = OrnsteinUhlenbeck(Target.oscillating(2, 20_000), 1.0, 4, 2.0, seed=4)
    pushed = process.innovations
    variance = 2.0 * (1 - math.exp(-2 * process.step)) / 2
    assert pushed.mean((1,)).abs().max() < 5 * math.sqrt(variance / 20_000)
    assert pushed[:, :, 0, 0].var(1) == pytest.approx([variance] * 4, rel=0.05)
    assert pushed[:, :, 0, 1].var(1) == pytest.approx([variance / 2] * 4, rel=0.05)
    for earlier, later in ((0, 1), (1, 2), (2, 3), (0, 3)):
        product = (pushed[earlier, :, 0, 0] * pushed[later, :, 0, 0]).mean()
        assert abs(product) < 5 * variance / math.sqrt(20_000)
        before = (process.values[later, :, 0, 0] * pushed[later, :, 0, 0]).mean()
        assert abs(before) < 5 * math.sqrt(
            variance * float(process.values[later, :, 0, 0].square().mean()) / 20_000
        )


def test_between_its_times_the_path_is_linear():
    process = OrnsteinUhlenbeck(Target.resting(2, 2), 1.0, 4, seed=1)
    assert torch.equal(process(0.0), process.values[0]) and torch.equal(process(1.0), process.values[-1])
    middle = (process.values[1] + process.values[2]) / 2
    assert (process(0.375) - middle).abs().max() < 1e-15


def test_defaults_are_the_published_ones():
    process = OrnsteinUhlenbeck(Target.resting(3, 10), 20.0, seed=42)
    assert (process.steps, process.noise, process.step) == (4000, 2.0, 5e-3)
    assert process.start.diagonal(dim1=1, dim2=2).std() == pytest.approx(2.0, rel=0.5)


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda target: OrnsteinUhlenbeck("identity", 1.0), "target must be a Target"),
        (lambda target: OrnsteinUhlenbeck(target, -1.0), "t must be > 0"),
        (lambda target: OrnsteinUhlenbeck(target, 1e300), "more than memory holds; give steps"),
        (lambda target: OrnsteinUhlenbeck(target, 1.0, 10**9), "do not fit into memory"),
        (lambda target: OrnsteinUhlenbeck(target, 1.0, 2.5), "steps must be an integer"),
        (lambda target: OrnsteinUhlenbeck(target, 1.0, 4, -1.0), "noise must be >= 0"),
        (lambda target: OrnsteinUhlenbeck(target, 1.0, 4, math.nan), "noise must be finite"),
        (lambda target: OrnsteinUhlenbeck(target, 1.0, 4, start=np.eye(2)), r"start must have shape \(2, 2, 2\)"),
        (
            lambda target: OrnsteinUhlenbeck(target, 1.0, 4, start=[[1.0, 2.0], [0.0, 1.0]]),
            "start must be symmetric",
        ),
        (lambda target: OrnsteinUhlenbeck(target, 1.0, 4, seed=-1), "seed must be >= 0"),
        (lambda target: OrnsteinUhlenbeck(target, 1.0, 4).refined(3), "by a power of two, got 3"),
        (lambda target: OrnsteinUhlenbeck(target, 1.0, 4)("x"), "t must be a number"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(build, match):
    with pytest.raises(InvalidInput, match=match) as refused:
        build(Target.resting(2, 2))
    assert len(str(refused.value)) < 200


def test_what_it_is_in_one_line():
    process = OrnsteinUhlenbeck(Target.resting(2), 1.0, 4)
    assert repr(process) == "OrnsteinUhlenbeck(Target(resting, 1 heads, d=2), noise=2, 4 steps until t = 1)"
