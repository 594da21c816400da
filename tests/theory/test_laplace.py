import math

import numpy as np
import pytest
import torch
from scipy import integrate

import metastable as ms
from metastable.errors import InvalidInput
from metastable.theory.laplace import (
    attention_defect,
    bessel_ratio,
    bessel_ratio_expansion,
    cap_bound,
    density_bound,
    effective_tokens,
    log_partition_uniform,
    sampling_error,
    smooth_mean,
    uniform_cap,
    uniform_mean,
)

BESSEL_RATIOS = {
    (2, 10): 0.9485998260,
    (3, 10): 0.9000000041,
    (4, 10): 0.8541853083,
    (8, 10): 0.6975113672,
    (64, 10): 0.1527119042,
    (2, 100): 0.9949873730,
    (3, 100): 0.9900000000,
    (8, 100): 0.9654418423,
    (64, 100): 0.7323801941,
}


def moment(d, kappa, power):
    """E[u^power e^{kappa (u-1)}] for the overlap u of a uniform point."""

    def integrand(p, j):
        u = math.cos(p)
        return u**j * math.exp(kappa * (u - 1)) * math.sin(p) ** (d - 2)

    width = min(math.pi, 12 / math.sqrt(kappa + 1))
    parts = [(0, width), (width, math.pi)]
    total = sum(integrate.quad(integrand, a, b, args=(power,), epsrel=1e-12, epsabs=1e-15)[0] for a, b in parts)
    norm = integrate.quad(lambda p: math.sin(p) ** (d - 2), 0, math.pi, epsrel=1e-13)[0]
    return total / norm


@pytest.mark.parametrize(("d", "kappa"), BESSEL_RATIOS)
def test_ratios_of_bessel_functions(d, kappa):
    assert bessel_ratio(d, kappa) == pytest.approx(BESSEL_RATIOS[d, kappa], abs=1e-9)


@pytest.mark.parametrize("d", [2, 3, 5, 16])
@pytest.mark.parametrize("kappa", [0.1, 3.0, 50.0, 800.0])
def test_ratio_and_partition_by_quadrature(d, kappa):
    m0, m1 = moment(d, kappa, 0), moment(d, kappa, 1)
    assert bessel_ratio(d, kappa) == pytest.approx(m1 / m0, rel=1e-10)
    assert log_partition_uniform(d, kappa) == pytest.approx(kappa + math.log(m0), abs=1e-10 * max(1, kappa))


def test_ratio_at_the_edges():
    assert bessel_ratio(3, 0.0) == 0
    assert bessel_ratio(3, 2.0) == pytest.approx(1 / math.tanh(2) - 0.5, abs=1e-14)
    assert bessel_ratio(2, 1e6) == pytest.approx(bessel_ratio_expansion(2, 1e6), abs=1e-15)
    # d so large that the Bessel functions underflow: k/d (1 - k^2/(d(d+2)) + ...)
    k, d = 3.0, 3000
    assert bessel_ratio(d, k) == pytest.approx(k / d * (1 - k * k / (d * (d + 2))), rel=1e-9)
    assert bessel_ratio(3, [1.0, 2.0]).shape == (2,)
    with pytest.raises(InvalidInput, match="kappa"):
        bessel_ratio(3, -1.0)
    with pytest.raises(InvalidInput, match="d must be >= 2"):
        bessel_ratio(1, 1.0)


@pytest.mark.parametrize("d", [2, 3, 8])
def test_expansion_has_third_order_error(d):
    errors = [abs(bessel_ratio(d, k) - bessel_ratio_expansion(d, k)) for k in (200.0, 400.0)]
    assert max(errors) < 1e-12 or errors[0] / errors[1] == pytest.approx(8, rel=0.1)


def test_uniform_mean_against_attention_over_quadrature_nodes():
    B = np.array([[1.0, 0.3, 0.0], [0.0, 0.7, 0.1], [0.2, 0.0, 1.1]])
    w = ms.AttentionWeights(V=np.eye(3), B=B)
    x = ms.sphere.uniform(10, 3, seed=1)
    nodes, mass = ms.sphere.product_gauss(80)
    attended = ms.attend(x @ w.B, nodes, mass, beta=12.0).mean
    assert torch.allclose(attended, uniform_mean(w, x, 12.0), atol=1e-10)


def test_smooth_density_expansion_on_the_circle():
    nodes = ms.sphere.equispaced(20000)
    theta = ms.sphere.angles(nodes)
    mass = 1 + 0.5 * torch.cos(theta) + 0.3 * torch.sin(2 * theta)
    query = 0.8
    f, df = (
        1 + 0.5 * math.cos(query) + 0.3 * math.sin(2 * query),
        -0.5 * math.sin(query) + 0.6 * math.cos(2 * query),
    )
    e = ms.sphere.from_angles([query])
    tangent = torch.tensor([[-math.sin(query), math.cos(query)]], dtype=torch.float64)
    errors = []
    for kappa in (100.0, 200.0):
        exact = ms.attend(e, nodes, mass / mass.sum(), beta=kappa).mean
        model = smooth_mean(e, torch.tensor([kappa], dtype=torch.float64), df / f * tangent)
        errors.append(float(torch.linalg.vector_norm(exact - model)))
        assert kappa * float((exact * tangent).sum()) == pytest.approx(df / f, rel=0.01)
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.1)


def test_bounds_hold_for_rough_densities():
    rng = np.random.default_rng(0)
    nodes = ms.sphere.equispaced(2000)
    theta = ms.sphere.angles(nodes).numpy()
    worst = {"density": 0.0, "cap": 0.0}
    for _ in range(200):
        kappa = float(rng.choice([5.0, 30.0, 200.0]))
        f = rng.uniform(0.2, 1.0, size=40)[(np.floor((theta + np.pi) / (2 * np.pi) * 40).astype(int)) % 40]
        mass = f / f.sum()
        query = rng.uniform(-np.pi, np.pi)
        e = ms.sphere.from_angles([query])
        error = float(torch.linalg.vector_norm(ms.attend(e, nodes, mass, beta=kappa).mean - e))
        overlaps = (nodes @ e[0]).numpy()
        order = np.argsort(-overlaps)
        height, total = 1 - overlaps[order], np.cumsum(mass[order])

        def cap(h, height=height, total=total):
            count = np.searchsorted(height, h, side="right")
            return np.where(count > 0, total[np.maximum(count - 1, 0)], 0.0)

        first, second = density_bound(2, kappa, f.max() / f.min()), cap_bound(kappa, cap)
        assert error <= first + 1e-9 and error <= second + 1e-9
        worst["density"], worst["cap"] = max(worst["density"], error / first), max(worst["cap"], error / second)
    # a silent factor of two in the bounds would show here
    assert 0.1 < worst["density"] < 0.6 and 0.02 < worst["cap"] < 0.4, worst


def test_simple_form_of_the_density_bound_needs_three_dimensions():
    for kappa in (0.5, 10.0, 1000.0):
        assert all(density_bound(d, kappa, 3.0) <= math.sqrt(3.0 * (d - 1) / kappa) + 1e-12 for d in (3, 4, 20))
        assert density_bound(2, kappa, 3.0) > math.sqrt(3.0 / kappa) or kappa < 1


def test_cap_bound_is_the_logarithm_of_the_theorem():
    # rho >= .2 sigma on the circle: (2.6 .. 3.2) sqrt(log(kappa+1)/kappa)
    for kappa in (30.0, 300.0, 3000.0, 1e5):
        ratio = cap_bound(kappa, lambda h: 0.2 * uniform_cap(2, h)) / math.sqrt(math.log(kappa + 1) / kappa)
        assert 2.3 < ratio < 3.3 or cap_bound(kappa, lambda h: 0.2 * uniform_cap(2, h)) == 2.0
    assert cap_bound(10.0, lambda h: 0 * h) == 2.0
    assert uniform_cap(3, [0.0, 0.5, 1.0, 1.5, 2.0]).tolist() == pytest.approx([0, 0.25, 0.5, 0.75, 1])


@pytest.mark.parametrize("d", [2, 3, 4])
def test_sampling_error_by_simulation(d):
    kappa, n, trials = 4.0, 400, 600
    w_error = []
    e = torch.zeros(1, d, dtype=torch.float64)
    e[0, 0] = 1.0
    for seed in range(trials):
        mean = ms.attend(e, ms.sphere.uniform(n, d, seed=seed), beta=kappa).mean[0]
        w_error.append(float((mean[1:] ** 2).sum()))
    # the mean square of (d-1) Gaussians has relative error sqrt(2/((d-1) trials)) < 6%, halved for the root
    assert math.sqrt(np.mean(w_error)) == pytest.approx(sampling_error(d, kappa, n), rel=0.12)


def test_effective_tokens():
    assert effective_tokens(1000, 50.0, 2) == pytest.approx(1000 / math.sqrt(math.pi * 50))
    assert effective_tokens(1000, 50.0, 3) == pytest.approx(20)
    assert effective_tokens(1000, 0.01, 3) == 1000
    assert effective_tokens(10, [1.0, 100.0], 4).shape == (2,)
    # a window e^{kappa u} holds as many tokens as the participation ratio 1/sum of squared weights
    x = ms.sphere.fibonacci(20000)
    weight = torch.exp(100.0 * (x[:, 2] - 1))
    participation = float(weight.sum() ** 2 / (weight**2).sum())
    assert participation == pytest.approx(effective_tokens(20000, 100.0, 3), rel=0.01)


def test_defect_of_the_start():
    w = ms.AttentionWeights(V=np.eye(3), B=np.eye(3))
    nodes = ms.sphere.fibonacci(4000)
    assert attention_defect(w, nodes, 50.0, queries=500) == pytest.approx(1 - bessel_ratio(3, 50.0), rel=0.05)
    assert attention_defect(w, ms.sphere.uniform(20, 3), 50.0) < 0.5


def reference(d, kappa):
    """(log E e^{kappa u}, A_d) in 60 digits."""
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(60):
        nu, k = mpmath.mpf(d) / 2 - 1, mpmath.mpf(kappa)
        below = mpmath.besseli(nu, k)
        partition = mpmath.loggamma(nu + 1) + nu * mpmath.log(2 / k) + mpmath.log(below)
        ratio = mpmath.besseli(nu + 1, k) / below
        return float(partition), float(ratio), float(1 - ratio)


@pytest.mark.parametrize(
    ("d", "kappa"),
    [(3, 1e10), (3, 1e12), (2, 1e10), (7, 3e9), (200, 2e9), (2000, 500.0), (4096, 1000.0), (768, 50.0)]
    + [(768, 1e-6), (64, 1e-8), (2, 499.0), (2, 501.0), (2, 199.9), (2, 200.1), (4096, 1e4), (4096, 1e5), (9, 0.3)],
)
def test_ratio_and_partition_at_any_dimension_and_temperature(d, kappa):
    partition, ratio, complement = reference(d, kappa)
    assert log_partition_uniform(d, kappa) == pytest.approx(partition, rel=1e-12, abs=0)
    assert bessel_ratio(d, kappa) == pytest.approx(ratio, rel=1e-12, abs=0)
    assert density_bound(d, kappa, 2.0) ** 2 == pytest.approx(4 * complement, rel=1e-10, abs=0)


def test_very_cold_attention_to_uniform_keys_has_unit_length():
    w = ms.AttentionWeights(V=np.eye(2), B=np.eye(2))
    mean = uniform_mean(w, [[1.0, 0.0]], 1e10)
    assert float(torch.linalg.vector_norm(mean)) == pytest.approx(1.0, abs=1e-9)
    mixed = bessel_ratio(3, [0.0, 1e-8, 1.0, 1e12])
    assert mixed.tolist() == pytest.approx([0.0, 1e-8 / 3, 1 / math.tanh(1) - 1, 1.0], rel=1e-12)
    assert ms.theory.growth_rate(1, 1e10, d=3) == pytest.approx(2e-10)


def test_sampling_error_in_high_dimension():
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(60):
        half = mpmath.mpf(1000)
        growth = mpmath.hyp0f1(half, mpmath.mpf(500) ** 2) / mpmath.hyp0f1(half, mpmath.mpf(250) ** 2) ** 2
        ratio = mpmath.besseli(half, 1000) / mpmath.besseli(half - 1, 1000)
        expected = float(mpmath.sqrt(mpmath.mpf(1999) / 1000 * ratio * growth / 100))
    assert sampling_error(2000, 500.0, 100) == pytest.approx(expected, rel=1e-10)
    assert sampling_error(4096, 1e5, 10) == math.inf
