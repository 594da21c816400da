"""Random hard calls of `attend` against the dense formula in extended precision: no error above the stated one.

Clusters down to 1e-9, equal keys, masses over 300 decades or zero, singular and ill-conditioned B, beta up to 1e6,
both precisions, all kernels of the CPU by name and the choice, with and without a tolerance.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from metastable.attention import KERNELS, Operands, attend
from metastable.attention.backwards import Backwards
from metastable.attention.direct import adjoint_over_pairs
from metastable.attention.sphere import lay_out, sphere_adjoint
from metastable.errors import InvalidInput

NAMES = (
    "auto",
    "auto",
    "dense",
    "fused",
    "blocks",
    "products",
    "sdpa",
    "nearby",
    "circle",
    "sphere",
    "sphere_grid",
)
"""Kernels of the CPU; the choice twice as often."""
MOST_ROWS = 24
"""Rows that are compared: extended precision has no fast matrix product."""


def tokens(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Unit vectors: uniform, clustered, nearly or exactly equal, antipodal, or on a small arc."""
    layout = rng.integers(6)
    x = rng.normal(size=(n, d))
    if layout == 1:
        x = rng.normal(size=(rng.integers(1, 5), d))[rng.integers(1, size=n)] + 10.0 ** rng.uniform(-9, -1) * x
    elif layout == 2:
        x = np.repeat(x[:1], n, axis=0)
    elif layout == 3:
        x = x[:1] * rng.choice([-1.0, 1.0], size=(n, 1)) + 10.0 ** rng.uniform(-9, 0) * x
    elif layout == 4:
        x = x[rng.integers(max(n // 5, 1), size=n)]
    elif layout == 5:
        x[:, 0] = abs(x[:, 0]) + 10.0 ** rng.uniform(0, 4)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def matrix(rng: np.random.Generator, d: int) -> np.ndarray:
    """B: the identity, Ginibre, singular, ill-conditioned, large or zero."""
    kind = rng.integers(6)
    b = rng.normal(size=(d, d)) / np.sqrt(d)
    if kind == 0:
        return np.eye(d)
    if kind == 1:
        return b
    u, s, v = np.linalg.svd(b)
    if kind == 2:
        s[d // 2 :] = 0.0
    elif kind == 3:
        s = np.logspace(0, -rng.uniform(1, 12), d)
    elif kind == 4:
        s *= 10.0 ** rng.uniform(-3, 1.5)
    else:
        s *= 0.0
    return (u * s) @ v


def masses(rng: np.random.Generator, n: int, decades: float) -> np.ndarray | None:
    """None, equal, mild, over many decades, one that outweighs all, or some of them zero; never all."""
    kind = rng.integers(7)
    if kind == 0:
        return None
    if kind == 1:
        return np.full(n, 10.0 ** rng.uniform(-0.45 * decades, 0.45 * decades))
    m = rng.uniform(0.1, 2.0, size=n)
    if kind in (2, 6):
        m = 10.0 ** rng.uniform(-decades, 0, size=n) * 10.0 ** rng.uniform(0, 0.1 * decades)
    elif kind == 3:
        m[rng.integers(n)] *= 10.0 ** rng.uniform(0, 0.9 * decades)
    elif kind == 4:
        m = rng.exponential(size=n) ** 8 + 1e-30
    if kind in (5, 6):
        m = np.where(rng.uniform(size=n) < rng.choice([0.1, 0.7]), 0.0, m)
        m[rng.integers(n)] = 1.0
    return m


def exact(q: np.ndarray, k: np.ndarray, v: np.ndarray, m: np.ndarray, beta: float) -> tuple[np.ndarray, np.ndarray]:
    """(mean, log Z) in numpy's longdouble by log-sum-exp, log m in the exponent."""
    seen = m > 0
    q, k, v, m = (x.astype(np.longdouble) for x in (q, k[seen], v[seen], m[seen]))
    logits = np.longdouble(beta) * (q @ k.T) + np.log(m)
    top = logits.max(axis=1, keepdims=True)
    weight = np.exp(logits - top)
    partition = weight.sum(axis=1, keepdims=True)
    return (weight @ v) / partition, (top + np.log(partition))[:, 0]


def case(seed: int) -> str | None:
    """One call; None, or how its error exceeds what it states."""
    rng = np.random.default_rng(seed)
    name = str(rng.choice(NAMES))
    d = {"circle": 2, "sphere": 3, "sphere_grid": 3}.get(name) or int(rng.choice([2, 2, 3, 3, 5, 9, 16, 33, 64]))
    d = int(rng.integers(2, 4)) if name == "nearby" else d
    d = int(rng.choice([2, 3, 5])) if name == "fused" else d  # as other tests: every d is compiled
    single = bool(rng.integers(2)) and not name.startswith(("sphere", "nearby"))
    dtype = torch.float32 if single else torch.float64
    n_k, n_q = (int(np.exp(rng.uniform(0, np.log(most)))) for most in (3000, 1200))
    beta = float(rng.choice([0.0, 1e-6, 1.0, 10.0 ** rng.uniform(-1, 4), 10.0 ** rng.uniform(0, 6)]))
    rtol = rng.choice([None, 1e-3, 1e-6, 1e-10])
    keys = torch.from_numpy(tokens(rng, n_k, d)).to(dtype)
    x = keys[:n_q] if rng.integers(2) else torch.from_numpy(tokens(rng, n_q, d)).to(dtype)
    queries = x @ torch.from_numpy(matrix(rng, d)).to(dtype)
    mass = masses(rng, n_k, 34.0 if single else 300.0)
    m = None if mass is None else torch.from_numpy(mass).to(dtype if rng.integers(3) else torch.float64)
    other = name != "circle" and rng.integers(3) == 0
    values = torch.from_numpy(rng.normal(size=(n_k, rng.choice([1, 2, 7])))).to(dtype) if other else None
    if name in ("auto", "dense", "blocks") and rng.integers(5) == 0:
        keys = keys * torch.from_numpy(rng.uniform(0.1, 3.0, size=(n_k, 1))).to(dtype)
    try:
        found = attend(queries, keys, m, beta, values=values, kernel=name, rtol=rtol)
    except InvalidInput as refusal:
        able = name == "auto" and "no digits left" not in str(refusal)
        return f"seed {seed}: {name} refuses: {refusal}" if able or len(str(refusal)) > 200 else None
    v = keys if values is None else values
    equal = np.full(n_k, 1.0 / n_k)
    m64 = torch.from_numpy(equal).to(dtype).double() if m is None else m.double()
    stated = found.error
    if stated is None:
        real = torch.finfo(dtype)
        held = real.tiny <= float(m64[m64 > 0].min()) and float(m64.max()) <= real.max
        operands = Operands(queries, keys, v, m64.to(dtype), beta) if held else None
        operands = operands or Operands(queries.double(), keys.double(), v.double(), m64, beta)
        stated = KERNELS[found.kernel].rounding(operands.seen)
        stated += real.eps * (2 + float(found.log_partition.abs().max()))
    rows = rng.permutation(len(queries))[:MOST_ROWS]
    mean, log_z = exact(*(t.double().numpy() for t in (queries[rows], keys, v, m64)), beta)
    seen = v[m64 > 0].double()
    longest = float(seen.norm(dim=1).max())
    off = np.linalg.norm((found.mean[rows].double().numpy() - mean).astype(float), axis=1).max()
    off_log = np.abs((found.log_partition[rows].double().numpy() - log_z).astype(float)).max()
    worst = max(off / max(longest, 1e-300), off_log)
    if worst <= stated:
        return None
    return (
        f"seed {seed}: {found.kernel} ({name}) {str(dtype)[-7:]} n_q={n_q} n_k={n_k} d={d} beta={beta:.3g} "
        f"rtol={rtol}: stated {stated:.2g}, mean off by {off / max(longest, 1e-300):.2g}, log Z by {off_log:.2g}"
    )


def transpose(seed: int) -> str | None:
    """The transpose of attention on S^2 by grids against all pairs: no error above the tolerance."""
    rng = np.random.default_rng(seed)
    n, beta, rtol = int(rng.integers(50, 700)), 10.0 ** rng.uniform(-1, 2.7), 10.0 ** rng.uniform(-11, -4)
    x, B = torch.from_numpy(tokens(rng, n, 3)), torch.from_numpy(matrix(rng, 3))
    mass = torch.from_numpy(rng.uniform(0.01, 1.0, size=n) ** rng.integers(0, 6))
    queries, g = beta * x @ B, torch.from_numpy(rng.normal(size=(n, 3)))
    scores = queries @ x.T + torch.log(mass)
    weights = torch.softmax(scores, 1)
    mean = weights @ x
    shift = (g * mean).sum(1) if rng.random() < 0.7 else torch.zeros_like(mass)
    given = Backwards(queries, x, torch.log(mass), torch.logsumexp(scores, 1), g, shift, mean)
    laid = lay_out(given, rtol)
    if laid is None:
        return None
    found, exact = sphere_adjoint(given, laid), adjoint_over_pairs(given)
    sizes, longest = g.norm(dim=1) + shift.abs(), 1.0 + float(queries.norm(dim=1).max())
    off = found[1] - exact[1]
    off = (off - (off * x).sum(1, keepdim=True) * x).norm(dim=1) / longest
    terms = weights.T @ sizes + mass / mass.sum() * sizes.sum()
    errors = float(((found[0] - exact[0]).norm(dim=1) / sizes).max()), float((off / terms).max())
    allowed = rtol + 1e-14 * longest
    if max(errors) <= allowed:
        return None
    return f"n = {n}, beta = {beta:.3g}, rtol = {rtol:.1e}: errors {errors[0]:.1e}, {errors[1]:.1e}"


CASES: dict[str, Callable[[int], str | None]] = {"attend": case, "transpose": transpose}
