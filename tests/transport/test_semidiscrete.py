"""Transport to k atoms: shortest augmenting paths against the linear program, primal against dual."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metastable.measure import Measure
from metastable.transport import semidiscrete, wasserstein
from metastable.transport.semidiscrete import semidiscrete_cost
from transport.clouds import cloud


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 120),
    st.integers(1, 16),
    st.sampled_from(["uniform", "duplicate", "antipodal"]),
    st.booleans(),
    st.integers(0, 10**6),
    st.sampled_from([1, 2]),
    st.sampled_from(["chordal", "geodesic"]),
)
def test_semidiscrete_is_the_linear_program(
    n: int, k: int, kind: str, weighted: bool, seed: int, p: int, metric: str
) -> None:
    rho, target = cloud(n, 3, kind, weighted, seed), cloud(k, 3, "uniform", weighted, seed + 1)
    found = wasserstein(rho, target, p, metric, method="atoms")
    assert found**p == pytest.approx(wasserstein(rho, target, p, metric, method="exact") ** p, abs=1e-12)


def test_certificate_at_size() -> None:
    """40 000 clustered, duplicate and spread tokens against nine atoms: primal and dual meet (else it raises)."""
    rng = np.random.default_rng(5)
    tight = np.repeat(rng.standard_normal((4, 3)), 5000, axis=0)
    points = np.concatenate([tight + 1e-9 * rng.standard_normal(tight.shape), tight])
    atoms = rng.standard_normal((9, 3))
    rho, target = Measure(points), Measure(atoms, rng.random(9) + 0.05)
    cost = np.square(rho.points.numpy()[:, None] - target.points.numpy()[None]).sum(-1)
    mass, weight = rho.mass.numpy(), target.mass.numpy()
    value, dual = semidiscrete_cost(cost, mass, weight)
    assert value == pytest.approx(float(mass @ (cost - dual).min(axis=1) + weight @ dual), abs=1e-11)


@pytest.mark.parametrize(("ratio", "d"), [(1e-3, 3), (1e-6, 3), (1e-9, 2), (1e-12, 4), (1e-16, 3)])
def test_one_atom_that_carries_nearly_all(ratio: float, d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths through an atom of mass 1e-9 let 1e-9 pass: the direct path of the same length is taken instead."""
    monkeypatch.setattr(semidiscrete, "network_simplex", None)  # never needed
    for seed in range(40):
        rng = np.random.default_rng(seed)
        k = int(rng.integers(3, 8))
        mass = np.full(k, ratio / (k - 1))
        mass[rng.integers(k)] = 1 - ratio
        rho, target = Measure(rng.standard_normal((40, d))), Measure(rng.standard_normal((k, d)), mass)
        metric = ("chordal", "geodesic")[seed % 2]
        found = wasserstein(rho, target, 2, metric, method="atoms")
        assert found**2 == pytest.approx(wasserstein(rho, target, 2, metric, method="exact") ** 2, abs=1e-12)


def test_the_network_simplex_stands_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the augmenting paths ever cut short, the answer would be the same."""
    rho, target = cloud(30, 3, "uniform", True, 1), cloud(5, 3, "uniform", True, 2)
    expected = wasserstein(rho, target)
    monkeypatch.setattr(semidiscrete, "_augment", lambda *_: (0.5, 0.4, 0.0))
    assert wasserstein(rho, target, method="atoms") == pytest.approx(float(expected), abs=1e-13)


def test_coincident_atoms_and_tokens() -> None:
    cost = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    value, _ = semidiscrete_cost(cost, np.array([0.25, 0.25, 0.5]), np.array([1e-9, 0.5 - 1e-9, 0.5]))
    assert value == pytest.approx(0.0, abs=1e-15)
    assert semidiscrete_cost(np.zeros((4, 3)), np.full(4, 0.25), np.array([0.1, 0.2, 0.7]))[0] == 0
