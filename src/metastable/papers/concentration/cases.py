"""Claims about special weights: great circle, V = B = I, negative, complex, defective and non-symmetric M."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy import special

from metastable import sphere
from metastable.flows import SelfAttention, ZeroTemperature
from metastable.measure import Measure
from metastable.papers.claim import Claim, Finding, Setting
from metastable.papers.concentration.families import repelling, run
from metastable.papers.concentration.terminal import first_crossing
from metastable.papers.drawing import Lines, Series
from metastable.solve import solve
from metastable.theory import comoving_target, fastest_mode, limit_map, spectrum
from metastable.weights import AttentionWeights

THEME = "Cases"
ESTIMATE = "metastable's estimate"


def great_circle_experiment(setting: Setting) -> Finding:
    """Finite beta on S^2 with E a plane: rms distance to E against the closed form at zero temperature."""
    w = AttentionWeights(V=np.diag([1.0, 1.0, 0.0]), B=np.eye(3))
    beta, n = setting.choose(64.0, 256.0), setting.choose(1500, 6000)
    times = np.linspace(0, 2.5, 21)
    path = run(w, beta, sphere.fibonacci(n), times, rtol=1e-6)
    onto = torch.linalg.vector_norm(path.points[..., :2], dim=2)
    measured = torch.sqrt(2 * (1 - onto) @ path.mass).numpy()
    m = 1 - np.exp(-2 * np.maximum(times, 1e-9))
    exact = np.sqrt(2 - 2 * (special.ellipe(m) - (1 - m) * special.ellipk(m)) / m)
    exact[0] = math.sqrt(2 - math.pi / 2)
    return Finding(
        float(np.abs(measured / exact - 1).max()), curves={"t": times, "tokens": measured, "exact": exact}
    )


def great_circle_figure(finding: Finding) -> Lines:
    """Distance to the great circle."""
    t = finding.curves["t"]
    series = [
        Series(t, finding.curves["tokens"], "tokens", "points"),
        Series(t, finding.curves["exact"], "closed form, zero temperature"),
    ]
    return Lines(
        "Concentration on a great circle, V = diag(1, 1, 0), B = I", "time t", "distance to E", series, log_y=True
    )


def mode_experiment(setting: Setting) -> Finding:
    """V = B = I on the circle: growth of a small density mode k against k^2 I_k(beta)/(beta I_0(beta))."""
    beta, n, size, t = 32.0, setting.choose(512, 1024), 1e-5, 1.0
    w = AttentionWeights(V=np.eye(2), B=np.eye(2))
    modes = np.array(setting.choose((1, 2, 4, 8, 12), (1, 2, 3, 4, 6, 8, 10, 12, 16)))
    theta = 2 * np.pi * (np.arange(n) + 0.5) / n
    measured, exact = [], []
    for k in modes:
        rho0 = Measure(sphere.from_angles(theta), 1 + size * np.cos(k * theta))
        path = run(w, beta, rho0, [0.0, t], rtol=1e-10)
        angle = sphere.angles(path.points[1]).numpy()
        amplitude = 2 * float((path.mass.numpy() * np.cos(k * angle)).sum())
        measured.append(math.log(amplitude / size) / t)
        exact.append(k**2 * special.ive(k, beta) / (beta * special.ive(0, beta)))
    ratio = np.array(measured) / np.array(exact)
    rows = [
        {"mode": int(k), "measured rate": a, "expected rate": b}
        for k, a, b in zip(modes, measured, exact, strict=True)
    ]
    return Finding(
        float(np.abs(ratio - 1).max()),
        curves={"k": modes, "measured": np.array(measured), "exact": np.array(exact)},
        table=rows,
    )


def mode_figure(finding: Finding) -> Lines:
    """Growth rates."""
    k = finding.curves["k"]
    return Lines(
        "Growth of density modes inside E (circle, V = B = I, β = 32)",
        "mode k",
        "growth rate",
        [
            Series(k, finding.curves["exact"], "k² I_k(β)/(β I₀(β))"),
            Series(k, finding.curves["measured"], "measured", "points"),
            Series(k, np.full(len(k), 2 / math.e), "2/e", "dotted"),
        ],
    )


def lumping_experiment(setting: Setting) -> Finding:
    """iid tokens on the circle, V = B = I: time at which their energy is a tenth above that of the uniform law.

    E(t)/E(uniform) = 1 + 2 sum_k (I_k/I_0)(beta) (|c_k|^2 - 1/n), c_k the mean of e^{ik theta}; the 1/n that
    tokens owe to themselves is taken off, so that iid tokens start at 1 on average.
    """
    beta, level = 60.0, 1.1
    w = AttentionWeights(V=np.eye(2), B=np.eye(2))
    counts, seeds = np.array(setting.choose((200, 800), (400, 1600, 6400))), 24
    times, modes = np.linspace(0, 4.5, 46), np.arange(1, 60)
    share = special.ive(modes, beta) / special.ive(0, beta)
    curves: dict[str, np.ndarray] = {"t": times, "n": counts}
    when, spread = [], []
    for n in counts:
        energy = np.empty((seeds, len(times)))
        for seed in range(seeds):
            path = run(w, beta, sphere.uniform(int(n), 2, seed=setting.seed + 500 + seed), times, rtol=1e-6)
            for j, x in enumerate(path.points):
                power = np.abs(np.exp(1j * np.outer(modes, sphere.angles(x).numpy())).mean(1)) ** 2
                energy[seed, j] = 1 + 2 * float(share @ (power - 1 / n))
        each = [first_crossing(times, row, level) for row in energy]
        when.append(np.mean(each))
        spread.append(np.std(each, ddof=1) / math.sqrt(seeds))
        curves[f"energy {n}"] = energy.mean(0)
    fastest, rate = fastest_mode(beta)
    logs = np.log(counts)
    lever = (logs - logs.mean()) / ((logs - logs.mean()) ** 2).sum()
    rows = [
        {"n": int(n), "time of lumping": t, "standard error": e}
        for n, t, e in zip(counts, when, spread, strict=True)
    ]
    return Finding(
        2 * rate * float(lever @ np.array(when)),
        uncertainty=2 * rate * float(np.linalg.norm(lever * np.array(spread))),
        curves=curves,
        table=rows,
        note=f"fastest mode {fastest}, its rate {rate:.4f}",
    )


def lumping_figure(finding: Finding) -> Lines:
    """Energy against time for every n."""
    t, counts = finding.curves["t"], finding.curves["n"]
    series = [
        Series(t, finding.curves[f"energy {n}"], f"n = {n}", shade=i / max(1, len(counts) - 1))
        for i, n in enumerate(counts)
    ]
    series.append(Series(t, np.full_like(t, 1.1), "a tenth above uniform", "dotted"))
    return Lines(
        "iid tokens lump on the circle, V = B = I, β = 60 (mean over seeds)", "time t", "energy / uniform", series
    )


def identity_experiment(setting: Setting) -> Finding:
    """V = B = I on S^2: rate of a small perturbation by the Legendre polynomial of degree k, from the field."""
    beta = 8.0
    points, weight = sphere.product_gauss(setting.choose(60, 90))
    flow = SelfAttention(AttentionWeights(V=np.eye(3), B=np.eye(3)), beta)
    degrees = np.arange(1, 9)
    size, measured, exact = 1e-6, [], []
    z = points[:, 2].numpy()
    for k in degrees:
        wave = special.eval_legendre(k, z)
        slope_of_wave = k * (z * wave - special.eval_legendre(k - 1, z)) / (z**2 - 1)
        mass = torch.from_numpy(weight.numpy() * (1 + size * wave))
        velocity = flow.velocity(0.0, points, mass)[:, 2].numpy()
        growth = float((mass.numpy() * slope_of_wave * velocity).sum())
        measured.append(growth * (2 * k + 1) / size)
        bessel = special.ive(k + 0.5, beta) / special.ive(0.5, beta)
        exact.append(k * (k + 1) * bessel / beta)
    error = np.abs(np.array(measured) / np.array(exact) - 1)
    rows = [
        {"degree": int(k), "measured rate": a, "expected rate": b}
        for k, a, b in zip(degrees, measured, exact, strict=True)
    ]
    curves = {"k": degrees, "measured": np.array(measured), "exact": np.array(exact)}
    return Finding(float(error.max()), curves=curves, table=rows)


def identity_figure(finding: Finding) -> Lines:
    """Growth rates by degree."""
    k = finding.curves["k"]
    return Lines(
        "Growth of harmonics on S², V = B = I, β = 8",
        "degree k",
        "growth rate",
        [
            Series(k, finding.curves["exact"], "k(k+1) I_{k+½}(β)/(β I_½(β))"),
            Series(k, finding.curves["measured"], "measured", "points"),
        ],
    )


def negative_experiment(setting: Setting) -> Finding:
    """All eigenvalues negative: tokens gather at the least negative one and keep the width beta^{-1/2}."""
    beta, n = setting.choose(64.0, 256.0), setting.choose(200, 400)
    times = np.linspace(0, 40, 41)
    path = run(repelling(), beta, sphere.equispaced(n), times, rtol=1e-7)
    variance = (path.points[..., 1] ** 2 @ path.mass).numpy()
    return Finding(
        float(beta * variance[-1]), curves={"t": times, "variance": variance, "expected": np.array([1 / beta])}
    )


def negative_figure(finding: Finding) -> Lines:
    """Transverse variance."""
    t = finding.curves["t"]
    series = [
        Series(t, finding.curves["variance"], "tokens"),
        Series(t, np.full_like(t, finding.curves["expected"][0]), "1/β", "dashed"),
    ]
    return Lines(
        "Negative eigenvalues, V = diag(−1, −2), B = I", "time t", "transverse variance", series, log_y=True
    )


def oblique_experiment(setting: Setting) -> Finding:
    """Share of tokens that the flow takes to Pi(x_0) with the oblique projector; the orthogonal one beside it."""
    generator = np.random.default_rng(setting.seed + 5)
    rows, shares = [], []
    for d in (2, 3, 5):
        S = np.eye(d) + 0.9 * generator.normal(size=(d, d)) / math.sqrt(d)
        M = S @ np.diag(np.concatenate([[2.0], np.linspace(0.9, -0.5, d - 1)])) @ np.linalg.inv(S)
        B = np.eye(d) + 0.3 * generator.normal(size=(d, d)) / math.sqrt(d)
        w = AttentionWeights(V=M @ np.linalg.inv(B.T), B=B)
        x0 = sphere.uniform(setting.choose(400, 2000), d, seed=setting.seed + d)
        end = solve(ZeroTemperature(w), x0, t=60 / spectrum(w).g_in, method="adaptive", rtol=1e-8).end.points
        e = spectrum(w).dominant_space[:, 0]
        orthogonal = torch.sign(x0 @ e)[:, None] * e
        right = float(((end - limit_map(w)(x0)).norm(dim=1) < 1e-3).double().mean())
        wrong = float(((end - orthogonal).norm(dim=1) > 1.0).double().mean())
        shares.append(right)
        rows.append({"d": d, "share at Pi(x_0)": right, "wrong with the orthogonal projector": wrong})
    dims = np.array([2.0, 3.0, 5.0])
    misplaced = np.array([row["wrong with the orthogonal projector"] for row in rows], dtype=float)
    return Finding(min(shares), curves={"d": dims, "right": np.array(shares), "wrong": misplaced}, table=rows)


def oblique_figure(finding: Finding) -> Lines:
    """Shares by dimension."""
    d = finding.curves["d"]
    series = [
        Series(d, finding.curves["right"], "tokens at Π(x₀), oblique projector", "points"),
        Series(d, finding.curves["wrong"], "tokens misplaced by the orthogonal projector", "points"),
    ]
    return Lines("Non-symmetric M: which projector", "dimension d", "share of tokens", series)


def comoving_experiment(setting: Setting) -> Finding:
    """A complex pair leads M: distance to the co-moving target, and to the static image Qx/|Qx|."""
    M = np.array([[1.0, -0.8, 0.0], [0.8, 1.0, 0.0], [0.0, 0.0, 0.0]])
    w = AttentionWeights(V=M, B=np.eye(3))
    beta, n = setting.choose(256.0, 1024.0), setting.choose(1000, 3000)
    x0 = sphere.fibonacci(n)
    times = np.linspace(0, 4, 17)
    path = run(w, beta, x0, times, rtol=1e-6)
    target = comoving_target(w, x0, times)
    static = target[0]
    moving = (path.points - target).square().sum(2).mean(1).sqrt().numpy()
    still = (path.points - static).square().sum(2).mean(1).sqrt().numpy()
    rows = [
        {"t": t, "to the moving target": a, "to the static one": b}
        for t, a, b in zip(times[::4], moving[::4], still[::4], strict=True)
    ]
    return Finding(
        float(moving[-1] / moving[0]), curves={"t": times, "moving": moving, "static": still}, table=rows
    )


def comoving_figure(finding: Finding) -> Lines:
    """Both distances."""
    t = finding.curves["t"]
    series = [
        Series(t, finding.curves["moving"], "to the co-moving target"),
        Series(t, finding.curves["static"], "to the static image Qx/|Qx|", "dashed"),
    ]
    return Lines(
        "Complex dominant pair: M = rotation and growth in a plane", "time t", "rms distance", series, log_y=True
    )


def jordan_experiment(setting: Setting) -> Finding:
    """A defective leading eigenvalue: tan(angle) * t -> 1, algebraic instead of exponential."""
    w = AttentionWeights(V=[[1.0, 1.0], [0.0, 1.0]], B=np.eye(2))
    x0 = sphere.uniform(100, 2, seed=setting.seed)
    times = np.concatenate([[0.0], np.geomspace(1, 400, 25)])
    path = solve(ZeroTemperature(w), x0, t=400.0, times=times, method="adaptive", rtol=1e-9)
    product = (path.points[..., 1] / path.points[..., 0]).abs().median(1).values.numpy() * times
    return Finding(float(product[-1]), curves={"t": times[1:], "product": product[1:]})


def jordan_figure(finding: Finding) -> Lines:
    """tan * t."""
    t = finding.curves["t"]
    series = [Series(t, finding.curves["product"], "median token"), Series(t, np.ones_like(t), "1", "dashed")]
    return Lines("Jordan block: algebraic approach", "time t", "t · tan(angle to E)", series, log_x=True)


CLAIMS = (
    Claim(
        "great-circle",
        "When E is a plane, tokens concentrate on the great circle along the zero-temperature closed form.",
        great_circle_experiment,
        expected=0.0,
        tolerance=0.1,
        reason="the correction at finite beta is of order 1/beta times the growth; beta = 64 (quick) or 256",
        source=ESTIMATE,
        figure=great_circle_figure,
        theme=THEME,
        unit="largest relative deviation",
        effort=6,
    ),
    Claim(
        "great-circle-modes",
        "Inside E density modes grow at k^2 I_k(beta)/(beta I_0(beta)), at most 2/e whatever beta is.",
        mode_experiment,
        expected=0.0,
        tolerance=1e-3,
        reason="linear response to a perturbation of 1e-5; the next order is 1e-4",
        source=ESTIMATE,
        figure=mode_figure,
        theme=THEME,
        unit="largest relative error",
        effort=3,
    ),
    Claim(
        "great-circle-clusters",
        "Inside E n iid tokens lump into clusters after ln(n)/(2 r) + O(1), r the fastest rate of a density mode: "
        "what grows is the noise n^{-1/2} of their sampling.",
        lumping_experiment,
        expected=1.0,
        tolerance=0.2,
        reason="neighbouring modes grow nearly as fast and add up to 10% to the slope here; the rest is noise",
        source=ESTIMATE,
        figure=lumping_figure,
        theme=THEME,
        unit="slope in ln n * 2r",
        effort=5,
    ),
    Claim(
        "identity-weights",
        "For V = B = I on S^2 harmonics of degree k grow at k(k+1) I_{k+1/2}(beta)/(beta I_{1/2}(beta)).",
        identity_experiment,
        expected=0.0,
        tolerance=1e-5,
        reason="linear response to a perturbation of 1e-6 on a product Gauss rule",
        source=ESTIMATE,
        figure=identity_figure,
        theme=THEME,
        unit="largest relative error",
    ),
    Claim(
        "negative-eigenvalues",
        "When all eigenvalues are negative tokens still gather at the largest one, as clusters of variance "
        "|mu_1|/((mu_1 - mu_2) beta).",
        negative_experiment,
        expected=1.0,
        tolerance=0.04,
        reason="first order in 1/beta, beta = 64 (quick) or 256",
        source=ESTIMATE,
        figure=negative_figure,
        theme=THEME,
        unit="beta * variance",
        effort=3,
    ),
    Claim(
        "oblique-projector",
        "For non-symmetric V B^T the limit is Qx/|Qx| with the oblique spectral projector Q, not with the "
        "orthogonal one.",
        oblique_experiment,
        expected=1.0,
        tolerance=0.005,
        reason="tokens within 1e-8 of the separatrix may still be on their way",
        source=ESTIMATE,
        figure=oblique_figure,
        theme=THEME,
        unit="share of tokens",
        effort=3,
    ),
    Claim(
        "complex-pair",
        "When a complex pair leads V B^T there is no static limit; tokens follow the co-moving target in E.",
        comoving_experiment,
        expected=0.1,
        tolerance=0.0,
        reason="e^{-4} = 0.02 of the distance would be left at zero temperature; the rest is 1/beta and n",
        source=ESTIMATE,
        figure=comoving_figure,
        relation="at most",
        theme=THEME,
        unit="distance at t = 4 / at t = 0",
        effort=6,
    ),
    Claim(
        "jordan-block",
        "When the leading eigenvalue of V B^T is defective the approach is algebraic: t tan(angle) -> 1.",
        jordan_experiment,
        expected=1.0,
        tolerance=0.02,
        reason="the next order is (x_1/x_2)/t, with a median of 1/400",
        source=ESTIMATE,
        figure=jordan_figure,
        theme=THEME,
        unit="t tan(angle)",
    ),
)
