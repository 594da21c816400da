"""Hardmax with error control: against many small steps, against itself, and where it is refused."""

import numpy as np
import pytest
import torch

import metastable as ms
from fuzz.runs import CASES
from metastable.errors import InvalidInput
from metastable.solve import Observer
from metastable.solve.switching import MOST_TOKENS
from small_runs import random_weights


def head(seed, d):
    g = np.random.default_rng(seed)
    return ms.AttentionWeights(V=g.normal(size=(d, d)), B=g.normal(size=(d, d)))


def small_steps(w, x, t, h):
    """The midpoint rule, which chatters where a token slides: an error of order h."""
    V, B, x = w.V.numpy(), w.B.numpy(), x.numpy().copy()

    def field(x):
        y = x[np.argmax(x @ B @ x.T, axis=1)] @ V.T
        return y - (y * x).sum(1, keepdims=True) * x

    for _ in range(round(t / h)):
        middle = x + h / 2 * field(x)
        x = x + h * field(middle / np.linalg.norm(middle, axis=1, keepdims=True))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    return torch.from_numpy(x)


def apart(a, b):
    return float((a - b).norm(dim=1).max())


@pytest.mark.parametrize(("seed", "d", "n"), [(0, 5, 8), (2, 3, 8), (3, 2, 8), (4, 5, 8), (11, 5, 6)])
def test_the_error_follows_the_tolerance_and_small_steps_converge_to_it(seed, d, n):
    w, x = head(seed, d), ms.sphere.uniform(n, d, seed=seed)
    ends = {
        rtol: ms.solve(ms.Hardmax(w), x, 1.0, rtol=rtol, atol=rtol / 100, max_steps=5000).end.points
        for rtol in (1e-4, 1e-6, 1e-8)
    }
    assert apart(ends[1e-4], ends[1e-8]) < 1e-3
    assert apart(ends[1e-6], ends[1e-8]) < 1e-5
    coarse, fine = (small_steps(w, x, 1.0, h) for h in (1e-3, 1e-4))
    assert apart(fine, ends[1e-8]) < 0.3 * apart(coarse, ends[1e-8]) + 1e-6


def test_a_run_goes_on_from_a_checkpoint_with_the_same_digits(tmp_path):
    w, x = head(0, 5), ms.sphere.uniform(8, 5, seed=0)

    class Interrupt(Observer):
        steps = 0

        def step(self, step):
            self.steps += 1
            if self.steps == 17:
                raise KeyboardInterrupt

    how = {"rtol": 1e-5, "out": tmp_path / "run.zarr"}
    with pytest.raises(KeyboardInterrupt):
        ms.solve(ms.Hardmax(w), x, 1.0, observers=[Interrupt()], **how)
    resumed = ms.solve(ms.Hardmax(w), x, 1.0, **how)
    assert torch.equal(resumed.end.points, ms.solve(ms.Hardmax(w), x, 1.0, rtol=1e-5).end.points)


def test_many_tokens_take_fixed_steps_and_say_so():
    path = ms.solve(ms.Hardmax(head(1, 2)), ms.sphere.uniform(MOST_TOKENS + 1, 2), 0.02)
    assert path.provenance["statistics"]["accepted_steps"] == 2
    assert path.provenance["accuracy"].startswith("steps across the jumps")


def test_what_it_cannot_solve_is_refused():
    with pytest.raises(InvalidInput, match="method 'switching' solves Hardmax flows, got SelfAttention"):
        ms.solve(ms.SelfAttention(random_weights(0, 2), 1.0), ms.sphere.uniform(3, 2), 1.0, method="switching")
    moving = ms.Hardmax(ms.Schedule(lambda t: random_weights(0, 2)))
    with pytest.raises(InvalidInput, match="needs constant or layered weights"):
        ms.solve(moving, ms.sphere.uniform(3, 2), 1.0, method="switching")
    assert ms.solve(moving, ms.sphere.uniform(3, 2), 0.1).provenance["parameters"]["method"] == "rk4"


@pytest.mark.parametrize("seed", range(1000, 1012))
def test_random_heads(seed):
    assert CASES["hardmax_tolerance"](seed) is None


def test_tokens_without_mass_are_seen_by_nobody_and_move_with_the_others():
    """An observer of mass zero follows the hardmax of the others, as in small fixed steps, and changes nothing."""
    w = ms.AttentionWeights(V=[[1.0, 0.3], [0.0, 0.8]], B=[[1.0, -0.4], [0.2, 1.0]])
    x = ms.sphere.uniform(7, 2, seed=5)
    mass = torch.tensor([0.3, 0.0, 0.2, 0.1, 0.0, 0.3, 0.1]).double()
    path = ms.solve(ms.Hardmax(w), ms.Measure(x, mass), 0.5)
    small = ms.solve(ms.Hardmax(w), ms.Measure(x, mass), 0.5, method="rk4", step=1e-4)
    assert float((path.end.points - small.end.points).abs().max()) < 1e-3
    seen = mass > 0
    alone = ms.solve(ms.Hardmax(w), ms.Measure(x[seen], mass[seen]), 0.5)
    assert float((path.end.points[seen] - alone.end.points).abs().max()) < 1e-7
    assert float((path.end.points[~seen] - x[~seen]).norm(dim=1).min()) > 0.01
