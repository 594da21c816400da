import numpy as np
import pytest
import torch

from metastable import sphere
from metastable.meanfield.turning import turning
from metastable.weights import AttentionWeights


def dense(w: AttentionWeights, beta: float, theta: np.ndarray, mass: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The formula itself, shifted by the maximum of each row."""
    x, y = sphere.from_angles(at), sphere.from_angles(theta)
    score = beta * x @ w.B @ y.T
    weight = torch.exp(score - score.max(1, keepdim=True).values) * torch.from_numpy(mass)
    velocity = (weight @ y / weight.sum(1, keepdim=True)) @ w.V.T
    return (x[:, 0] * velocity[:, 1] - x[:, 1] * velocity[:, 0]).numpy()


@pytest.mark.parametrize("beta", [0.0, 1.0, 100.0, 3000.0])
def test_velocities_are_those_of_the_formula(beta: float) -> None:
    rng = np.random.default_rng(3)
    w = AttentionWeights(V=rng.normal(size=(2, 2)), B=rng.normal(size=(2, 2)))
    theta, at = rng.uniform(0, 7, 60), rng.uniform(-7, 7, 25)
    mass = rng.uniform(0.1, 1, 60)
    for where in (theta, at):
        found = turning(w, beta, theta, mass, where)
        assert found == pytest.approx(dense(w, beta, theta, mass, where), abs=2e-13 * max(beta, 1.0))


def test_masses_may_be_negative() -> None:
    rng = np.random.default_rng(4)
    w = AttentionWeights(V=np.eye(2), B=np.array([[1.0, 0.5], [0.0, 1.0]]))
    theta = rng.uniform(0, 7, 40)
    mass = np.where(np.arange(40) % 8 == 0, -0.02, 1.0)
    assert turning(w, 3.0, theta, mass, theta) == pytest.approx(dense(w, 3.0, theta, mass, theta), abs=1e-13)


def test_weights_may_be_factors() -> None:
    rng = np.random.default_rng(5)
    Q, K, V, O = (rng.normal(size=shape) for shape in ((1, 2), (1, 2), (1, 2), (2, 1)))
    w = AttentionWeights.from_qkv(Q, K, V, O)
    theta, mass = rng.uniform(0, 7, 30), np.full(30, 1 / 30)
    assert turning(w, 2.0, theta, mass, theta) == pytest.approx(dense(w, 2.0, theta, mass, theta), abs=1e-13)
