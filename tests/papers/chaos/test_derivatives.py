import numpy as np
import torch

import metastable as ms
from metastable.papers.chaos.derivatives import adjoint, observer, unit_matrices, with_observer
from small_claims import small_verdict


def test_an_observer_has_no_mass_and_a_tangent_direction():
    x, u = observer(4, seed=3)
    assert x.shape == (1, 4) and abs(float(x[0] @ u)) < 1e-15 and abs(float(u.norm()) - 1) < 1e-15
    rho = with_observer(ms.Measure(ms.sphere.uniform(5, 4, seed=1)), x)
    assert rho.n == 6 and float(rho.mass[-1]) == 0.0


def test_single_entries():
    assert np.array_equal(sum(unit_matrices(3)), np.ones((3, 3)))


def test_the_adjoint_does_not_see_the_observer_acting():
    """The derivative by V along V itself is that by the clock: V = (1 + eps) V runs for (1 + eps) T."""
    x, u = observer(3, seed=1)
    w = ms.AttentionWeights(V=np.diag([1.0, 0.5, -0.3]), B=np.eye(3))
    context = ms.Measure(ms.sphere.uniform(30, 3, seed=2))
    by = adjoint(context, x, u, w, 2.0, 0.9)
    path = ms.solve(ms.SelfAttention(w, 2.0), with_observer(context, x), t=0.9, rtol=1e-11, atol=1e-12)
    speed = ms.SelfAttention(w, 2.0).velocity(0.9, path.end.points, path.end.mass)[-1]
    assert abs(float((by["V"] * w.V).sum()) - 0.9 * float(speed @ u)) < 1e-8
    assert torch.isfinite(by["B"]).all()


def test_digits():
    assert small_verdict("weight-derivative-closed").measured < 1e-7
    assert small_verdict("adjoint-is-central").measured < 1e-6
