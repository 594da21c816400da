"""Forecasts against runs: one random head, temperature and set of tokens per seed.

`case(seed)` is None when all that the forecast claims holds, else one line that says what does not.
"""

import math
import warnings
from collections.abc import Callable

import numpy as np
import torch

import metastable as ms
from metastable.meanfield.nodes import sobol
from metastable.spectral import dominant
from metastable.theory import forecast
from metastable.theory.picard import distance_from

FRAMES = 6
"""Times at which a run is compared, from the start to the end of what is claimed."""
ROUNDING = 2e-3
"""Relative error of W2 along a run at rtol 1e-5, with room: what a comparison cannot decide."""
KINDS = ("commuting", "isotropic", "symmetric", "nearly", "oblique", "generic")


def head(rng, d):
    """(kind, weights): V and B that commute, B = b I, symmetric M, nearly symmetric M, oblique M, any V."""
    kind = str(rng.choice(KINDS))
    Z = np.linalg.qr(rng.normal(size=(d, d)))[0]
    if kind == "commuting":
        v = rng.uniform(-2, 2, d) if rng.random() < 0.4 else rng.uniform(0.2, 2, d)
        b = rng.uniform(0.3, 2.5, d) * (1 if rng.random() < 0.8 else rng.choice([-1, 1], size=d))
        return kind, ms.AttentionWeights(V=Z @ np.diag(v) @ Z.T, B=Z @ np.diag(b) @ Z.T)
    if kind == "isotropic":
        v = np.sort(rng.uniform(-1.5, 2.0, d))[::-1].copy()
        if d > 2 and rng.random() < 0.4:
            v[1] = v[0]
        return kind, ms.AttentionWeights(V=Z @ np.diag(v) @ Z.T, B=rng.choice([0.5, 1.0, 2.0, -1.0]) * np.eye(d))
    B = rng.choice([1.0, 2.0]) * np.eye(d) + rng.choice([0.15, 0.3, 0.6]) * rng.normal(size=(d, d)) / math.sqrt(d)
    if kind == "generic":
        return kind, ms.AttentionWeights(V=rng.normal(size=(d, d)) / math.sqrt(d), B=B)
    levels = np.sort(rng.uniform(-1, 1.5, size=d))[::-1].copy()
    k = 1 if d == 2 or rng.random() < 0.7 else 2
    levels[:k] = levels[k] + rng.uniform(0.1, 1.2)
    S = {
        "symmetric": Z,
        "nearly": Z @ (np.eye(d) + 0.1 * rng.normal(size=(d, d)) / math.sqrt(d)),
        "oblique": np.eye(d) + rng.choice([0.3, 0.6]) * rng.normal(size=(d, d)),
    }[kind]
    return kind, ms.AttentionWeights(V=S @ np.diag(levels) @ np.linalg.inv(S) @ np.linalg.inv(B.T), B=B)


def tokens(rng, n, d):
    """(points, deterministic): nodes, a uniform sample or one of von Mises and Fisher."""
    draw, seed = rng.random(), int(rng.integers(1 << 30))
    if draw < 0.35:
        nodes = {2: ms.sphere.equispaced, 3: ms.sphere.fibonacci}.get(d, lambda n: sobol(n, d))
        return nodes(n), True
    if draw < 0.75:
        return ms.sphere.uniform(n, d, seed=seed), False
    return ms.sphere.von_mises_fisher(n, rng.normal(size=d), rng.uniform(0, 2), seed=seed), False


def random_forecast(seed):
    """(kind, forecast) of one seed: d = 2 to 6, n = 50 to 3000 (mostly a few hundred), beta = 2 to 500."""
    rng = np.random.default_rng(seed)
    d = int(rng.choice([2, 2, 3, 3, 4, 5, 6]))
    largest = 3000 if seed % 8 == 0 else 500
    n = round(math.exp(rng.uniform(math.log(50), math.log(largest))))
    beta = math.exp(rng.uniform(math.log(2), math.log(500)))
    kind, w = head(rng, d)
    x, deterministic = tokens(rng, n, d)
    if n > 300 and 1 < dominant(w.M).dimension < d:
        x = x[:300]  # exact transport between larger laws takes too long
    return kind, forecast(w, beta, x, deterministic=deterministic)


def measured(f, times):
    """W2 to Pi#rho_0 along a run of the forecast's tokens."""
    flow = ms.SelfAttention(f.weights, beta=f.beta, rtol=1e-6)
    path = ms.solve(flow, f.rho0, t=float(times[-1]), times=times, rtol=1e-5, atol=1e-7)
    distance = distance_from(f._prediction.pi, f.rho0.points, f.rho0.mass)
    return np.array([distance(x) for x in path.points])


def case(seed: int) -> str | None:
    """What `judged` finds in the forecast of this seed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kind, f = random_forecast(seed)
        found = judged(f)
    who = f"{kind}, d = {f.rho0.d}, n = {f.rho0.n}, beta = {f.beta:.4g}, seed {seed}"
    return None if found is None else f"{who}: {found}"


def judged(f) -> str | None:
    """`curve` within 15% up to `valid_until`, `safe_curve` above the run up to `times.safe`, both before the
    exit."""
    if f.spectrum.kind in ("rotation", "jordan", "identity"):
        return None
    last = f.times.crossing if math.isnan(f.times.exit) else f.times.exit
    for name, end in (("valid_until", f.valid_until), ("times.safe", f.times.safe)):
        if not end <= last:
            return f"{name} = {end:.4g} after the exit at {last:.4g}"
    ends = [end for end in (f.valid_until, f.times.safe) if end > 0]
    if not ends:
        return None
    times = np.unique(np.concatenate([np.linspace(0, end, FRAMES) for end in ends]))
    W = measured(f, times)
    inside = np.asarray(f.in_range(times))
    error = np.where(inside, np.abs(np.asarray(f.curve(times)) / np.maximum(W, 1e-300) - 1), 0.0)
    if float(error.max()) > 0.15:
        i = int(np.argmax(error))
        return f"curve off by {error[i]:.3f} at t = {times[i]:.4g} of {f.valid_until:.4g}"
    over = np.where(times <= f.times.safe, W / np.asarray(f.safe_curve(times)), 0.0)
    if f.times.safe > 0 and float(over.max()) > 1 + ROUNDING:
        i = int(np.argmax(over))
        return f"W2 / safe curve = {over[i]:.3f} at t = {times[i]:.4g} of {f.times.safe:.4g}"
    return None


def kinds(seed: int) -> str | None:
    """Conjugated Jordan blocks of size 2 to 4 are called so, complex pairs stay rotations."""
    rng = np.random.default_rng(seed)
    jordan, value = bool(rng.random() < 0.5), rng.uniform(-1, 1)
    size = int(rng.integers(2, 5)) if jordan else 2
    frequency = 10 ** rng.uniform(-3, 0.3)
    block = (
        value * np.eye(size) + np.diag(np.full(size - 1, rng.uniform(0.3, 2)), 1)
        if jordan
        else np.array([[value, -frequency], [frequency, value]])
    )
    rest = value - rng.uniform(0.2, 1.5, int(rng.integers(3)))
    d = size + len(rest)
    A = np.zeros((d, d))
    A[:size, :size], A[size:, size:] = block, np.diag(rest)
    S = rng.normal(size=(d, d)) if rng.random() < 0.5 else np.eye(d) + 0.3 * rng.normal(size=(d, d))
    if np.linalg.cond(S) > 1e3:
        return None
    found = dominant(torch.from_numpy(S @ A @ np.linalg.inv(S)))
    expected = ("jordan" if jordan else "rotation", size)
    if (found.kind, found.dimension) == expected:
        return None
    return f"{expected} taken for {(found.kind, found.dimension)}, seed {seed}"


CASES: dict[str, Callable[[int], str | None]] = {"range": case, "kinds": kinds}
