"""Transport to k atoms: shortest augmenting paths against the linear program, primal against dual."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metastable.measure import Measure
from metastable.transport import wasserstein
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
