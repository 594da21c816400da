import math

import numpy as np
import pytest
import torch
from scipy import integrate, special

import metastable as ms
from metastable.errors import InvalidInput
from metastable.theory import distance_to_limit, zero_temperature
from metastable.theory.closed_forms import log_jacobian, planar_travel_time, transported_density, uniform_distance

CLOSED_FORM_W2 = {
    (2, 1): [0.6041589962, 0.3948144468, 0.1516240925, 0.0206642634],
    (3, 1): [0.7334049650, 0.4882682091, 0.1896639658, 0.0258978814],
    (3, 2): [0.3784874064, 0.1879004790, 0.0361138375, 0.0009420646],
}


@pytest.mark.parametrize(("d", "k"), CLOSED_FORM_W2)
def test_distances_of_uniform_data(d, k):
    values = uniform_distance(d, k, [1.0, 2.0, 4.0, 8.0])
    assert values.tolist() == pytest.approx(CLOSED_FORM_W2[d, k], abs=1e-9)


@pytest.mark.parametrize(("d", "k"), [(2, 1), (3, 1), (3, 2), (5, 2), (8, 1)])
@pytest.mark.parametrize("x", [0.0, 1e-4, 0.3, 2.0, 6.0])
def test_against_the_beta_law(d, k, x):
    s = math.exp(-x)

    def integrand(p):
        z = math.sin(p)
        cost = 2 * (1 - z / math.sqrt(z * z + s * s * math.cos(p) ** 2))
        return cost * z ** (k - 1) * math.cos(p) ** (d - k - 1)

    parts = [(0, s / 2), (s / 2, min(1.0, 4 * s)), (min(1.0, 4 * s), math.pi / 2)]
    total = sum(integrate.quad(integrand, a, b, epsabs=1e-15, epsrel=1e-13, limit=400)[0] for a, b in parts)
    exact = 2 * total / special.beta(k / 2, (d - k) / 2)
    assert uniform_distance(d, k, x) ** 2 == pytest.approx(exact, abs=1e-10)


def test_half_of_the_gap_is_the_global_rate():
    # k = 1: e^{-gap t/2}; k = 3: e^{-gap t}
    for d, k, rate in ((3, 1, 0.5), (6, 3, 1.0)):
        a, b = uniform_distance(d, k, [14.0, 15.0]).log().tolist()
        assert a - b == pytest.approx(rate, rel=1e-4)


def test_equispaced_nodes_reproduce_the_planar_closed_form():
    w = ms.AttentionWeights(V=np.diag([2.0, 1.0]), B=np.eye(2))
    assert distance_to_limit(w, ms.sphere.equispaced(20000), 1.0) == pytest.approx(0.6041589962, abs=1e-6)


def test_log_jacobian_against_finite_differences():
    rng = np.random.default_rng(0)
    w = ms.AttentionWeights(V=rng.normal(size=(3, 3)), B=np.eye(3) + 0.3 * rng.normal(size=(3, 3)))
    x = ms.sphere.uniform(1, 3, seed=3)[0]
    t, h = 0.8, 1e-6

    def frame(point):
        return torch.linalg.svd(point[None])[2][1:]

    tangent, end = frame(x), zero_temperature(w, x[None], t)[0]
    out = frame(end)
    columns = []
    for v in tangent:
        plus, minus = (zero_temperature(w, ms.sphere.normalize(x + s * h * v)[None], t)[0] for s in (1, -1))
        columns.append(out @ (plus - minus) / (2 * h))
    volume = abs(float(torch.linalg.det(torch.stack(columns, dim=1))))
    assert float(log_jacobian(w, x[None], t)[0]) == pytest.approx(math.log(volume), abs=1e-6)


def test_isometric_jacobian_is_the_published_formula():
    w = ms.AttentionWeights(V=np.diag([1.0, 0.3, -0.4]), B=np.eye(3))
    x = ms.sphere.uniform(6, 3, seed=1)
    y = x @ torch.linalg.matrix_exp(1.7 * w.M).T
    expected = 1.7 * torch.trace(w.M) - 3 * torch.log(torch.linalg.vector_norm(y, dim=1))
    assert torch.allclose(log_jacobian(w, x, 1.7), expected, atol=1e-11)


def test_transported_density_keeps_its_mass_and_moments():
    B = np.array([[1.0, 0.5], [-0.2, 0.8]])
    w = ms.AttentionWeights(V=[[1.0, 0.2], [0.1, -0.5]], B=B)
    nodes = ms.sphere.equispaced(4000)

    def density(x):
        return 1 + 0.5 * x[:, 0] + 0.3 * x[:, 0] * x[:, 1]

    f = transported_density(w, density, 1.2)(nodes)
    assert float(f.mean()) == pytest.approx(1.0, abs=1e-10)
    pushed = zero_temperature(w, nodes, 1.2)
    expected = float((density(nodes) * pushed[:, 0]).mean())
    assert float((f * nodes[:, 0]).mean()) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("b", [(1.0, 0.5), (0.5, 1.0), (1.0, 1.0), (2.0, -1.0)])
def test_planar_travel_time(b):
    w = ms.AttentionWeights(V=np.diag([2.0 / b[0], 0.5 / b[1]]), B=np.diag(b))
    t = planar_travel_time(b, (2.0, 0.5), 1.3, 0.2)
    assert t > 0
    end = zero_temperature(w, ms.sphere.from_angles([1.3]), t)
    assert float(ms.sphere.angles(end)[0]) == pytest.approx(0.2, abs=1e-11)


def test_refusals():
    with pytest.raises(InvalidInput, match="1 <= k < d"):
        uniform_distance(3, 3, 1.0)
    with pytest.raises(InvalidInput, match=">= 0"):
        uniform_distance(3, 1, -1.0)
    with pytest.raises(InvalidInput, match="singular"):
        planar_travel_time((1.0, 0.0), (2.0, 1.0), 1.0, 0.5)
    with pytest.raises(InvalidInput, match="the start must be > 0 and < 1"):
        planar_travel_time((1.0, 1.0), (2.0, 1.0), 2.0, 0.5)
    with pytest.raises(InvalidInput, match="identity"):
        planar_travel_time((1.0, 1.0), (1.0, 1.0), 1.0, 0.5)


def test_late_distances_keep_their_digits():
    # d = 2, k = 1: W2^2 = (4/pi) s - s^2 + ...; d = 3, k = 2: s^2 (log(4/s) - 3/2) + ...; k >= 3: s^2 (d-k)/(k-2)
    for x in (30.0, 40.0, 300.0, 800.0):
        s = math.exp(-x)
        expected = math.exp(-x / 2) * math.sqrt(4 / math.pi - s)
        assert uniform_distance(2, 1, x) == pytest.approx(expected, rel=1e-12, abs=0)
    for x in (30.0, 300.0, 700.0):
        expected = math.exp(-x) * math.sqrt(x + math.log(4) - 1.5)
        assert uniform_distance(3, 2, x) == pytest.approx(expected, rel=1e-11, abs=0)
    assert uniform_distance(8, 5, 100.0) == pytest.approx(math.exp(-100.0), rel=1e-11, abs=0)
    assert uniform_distance(3, 1, 1000.0) == pytest.approx(math.sqrt(2) * math.exp(-500.0), rel=1e-12, abs=0)
    assert uniform_distance(3, 2, 800.0) == 0.0  # below the smallest number
    late = uniform_distance(4, 2, [699.0, 700.0])
    assert float(late[0] / late[1]) == pytest.approx(math.e, rel=1e-3)


def test_closed_forms_join_the_quadrature():
    for d, k, s in ((2, 1, 0.9), (3, 2, 0.9), (3, 2, 0.05)):
        a, b = uniform_distance(d, k, [-math.log(s) * (1 - 1e-12), -math.log(s) * (1 + 1e-12)]).tolist()
        assert a == pytest.approx(b, rel=1e-11)
