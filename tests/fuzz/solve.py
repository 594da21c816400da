"""Random small runs: against an independent integrator, across an interruption, and to a later time.

Every case builds one run from its seed, compares, and returns None, or one line that says what is wrong.
"""

import math
import os
import random
import tempfile
from collections.abc import Callable

import numpy as np
import torch
from scipy.integrate import solve_ivp

import metastable as ms

REFERENCE = 1e-11
"""Error of the reference: DOP853 at 1e-12 per step, over some ten to hundred steps."""


def draw(seed: int) -> tuple[random.Random, ms.Flow, ms.Measure]:
    """A flow of any kind and tokens for it."""
    rnd = random.Random(seed)
    g = torch.Generator().manual_seed(seed)
    d, n = rnd.randint(2, 5), rnd.randint(1, 12)
    beta = rnd.choice((0.0, 10 ** rnd.uniform(-2, 1.5)))

    def head() -> ms.AttentionWeights:
        V = torch.randn(d, d, generator=g, dtype=torch.float64)
        B = torch.eye(d, dtype=torch.float64) + 0.5 * torch.randn(d, d, generator=g, dtype=torch.float64)
        return ms.AttentionWeights(V=V, B=B)

    kind = rnd.choice(("softmax", "softmax", "unnormalized", "euclidean", "heads", "layers", "smooth"))
    flow: ms.Flow
    if kind == "unnormalized":
        w = head()
        flow = ms.UnnormalizedAttention(w, beta, log_scale=beta * w.B_norm)
    elif kind == "euclidean":
        flow = ms.EuclideanAttention(head(), min(beta, 1.0))
    elif kind == "heads":
        flow = ms.MultiHead([ms.SelfAttention(head(), beta), ms.SelfAttention(head(), 1.0)], "mean")
    elif kind == "layers":
        flow = ms.SelfAttention(ms.Schedule.layers([head(), head(), head()], 3.0), beta)
    elif kind == "smooth":
        first, second = head(), head()

        def at(t: float) -> ms.AttentionWeights:
            return ms.AttentionWeights(V=first.V + math.sin(t) * second.V, B=first.B)

        flow = ms.SelfAttention(ms.Schedule(at, time_scale=1.0), beta)
    else:
        flow = ms.SelfAttention(head(), beta)
    free = kind == "euclidean"
    points = 0.5 * torch.randn(n, d, generator=g).double() if free else ms.sphere.uniform(n, d, seed=g)
    mass = torch.rand(n, generator=g, dtype=torch.float64) + 0.05
    return rnd, flow, ms.Measure(points, mass, sphere=not free)


def reference(flow: ms.Flow, rho: ms.Measure, t: float) -> np.ndarray:
    """The tokens at time t by SciPy's DOP853, restarted where the weights jump."""
    shape, y, now = tuple(rho.points.shape), rho.points.numpy().ravel(), 0.0
    for end in [*(b for b in flow.breakpoints if b < t), t]:
        inside = math.nextafter(end, -math.inf)

        def field(time: float, y: np.ndarray, last: float = inside) -> np.ndarray:
            points = torch.from_numpy(y.reshape(shape).copy())
            return flow.velocity(min(time, last), points, rho.mass).numpy().ravel()

        y = solve_ivp(field, (now, end), y, method="DOP853", rtol=1e-12, atol=1e-13).y[:, -1]
        now = end
    return y.reshape(shape)


def error(seed: int) -> str | None:
    """The error of an adaptive run is within its tolerance, times what the flow makes of a change of the start."""
    rnd, flow, rho = draw(seed)
    t, rtol, atol = rnd.uniform(0.2, 2.9), 10 ** rnd.uniform(-9, -4), 10 ** rnd.uniform(-11, -6)
    method = rnd.choice(("adaptive", "dop853"))
    path = ms.solve(flow, rho, t, method=method, rtol=rtol, atol=atol)
    expected = reference(flow, rho, t)
    off = float(np.abs(path.end.points.numpy() - expected).max())
    # How far the flow carries two starts from each other: the condition of the problem, not of the method.
    noise = torch.randn(*rho.points.shape, generator=torch.Generator().manual_seed(seed)).double()
    apart = reference(flow, ms.Measure(rho.points + 1e-6 * noise, rho.mass, sphere=rho.sphere), t)
    spread = max(1.0, float(np.abs(apart - expected).max()) / 1e-6)
    size = max(1.0, float(np.abs(expected).max()))
    allowed = (atol + rtol * size + REFERENCE) * spread
    what = f"{type(flow).__name__} by {method} to t = {t:.3g} with rtol {rtol:.1e}, atol {atol:.1e}"
    return None if off <= allowed else f"{what}: off by {off:.2e}, allowed {allowed:.2e}"


def options(rnd: random.Random) -> dict:
    """A method with its options, and save times up to a final time."""
    t = rnd.uniform(0.3, 2.9)
    method = rnd.choice(("adaptive", "dop853", "rk4", "euler"))
    step = {} if method in ("adaptive", "dop853") else {"step": rnd.choice((0.1, 0.25, t / 7))}
    times = sorted({rnd.uniform(0, t) for _ in range(rnd.randint(1, 6))} | ({0.0} if rnd.random() < 0.7 else set()))
    return {"t": t, "times": times, "method": method, "rtol": 1e-6, **step}


def different(a: ms.Path, b: ms.Path) -> str | None:
    """What of two runs is not the same, to the bit."""
    if not (torch.equal(a.points, b.points) and torch.equal(a.end.points, b.end.points)):
        return "tokens"
    if a.times.tolist() != b.times.tolist() or a.end_time != b.end_time or a.events != b.events:
        return "times"
    return None if a.provenance == b.provenance else "provenance"


class Interrupted(Exception):
    """In the middle of a run."""


def interruption(seed: int) -> str | None:
    """A run that is interrupted after a random step, and called again, is the run that was not, to the bit."""
    rnd, flow, rho = draw(seed)
    how = options(rnd)
    whole = ms.solve(flow, rho, **how)
    stop = rnd.randint(1, whole.provenance["statistics"]["accepted_steps"])
    every = rnd.choice((0.0, 1e9))

    def interrupt(t: float, steps: int) -> None:
        if steps >= stop:
            raise Interrupted

    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run.zarr")
        try:
            ms.solve(flow, rho, **how, out=out, checkpoint_every=every, progress=interrupt)
        except Interrupted:
            pass
        else:
            return f"{how}: was not interrupted at step {stop}"
        resumed = ms.solve(flow, rho, **how, out=out)
        found = different(resumed, whole)
        left = sorted(os.listdir(folder))
    if left != ["run.zarr"]:
        return f"left {left}"
    return None if found is None else f"{type(flow).__name__} {how} interrupted at step {stop}: other {found}"


def extension(seed: int) -> str | None:
    """A run that is extended, once or twice, in memory or from disk, is one run, to the bit."""
    rnd, flow, rho = draw(seed)
    how = options(rnd)
    t, times = how.pop("t"), how.pop("times")
    first = t * rnd.uniform(0.1, 0.9)
    second = first + (t - first) * rnd.uniform(0.1, 0.9)
    early = [x for x in times if x < first] or [0.0]
    middle, late = [x for x in times if first < x <= second], [x for x in times if x > second]
    once = ms.solve(flow, rho, t, times=early + middle + late, **how)
    path = ms.solve(flow, rho, first, times=early, **how)
    with tempfile.TemporaryDirectory() as folder:
        given = {}
        if rnd.random() < 0.5:
            path.save(os.path.join(folder, "first.zarr"))
            path, given = ms.load(os.path.join(folder, "first.zarr")), {"flow": flow}
        if rnd.random() < 0.5:
            out = os.path.join(folder, "second.zarr") if rnd.random() < 0.5 else None
            path = path.extend(second, times=middle, out=out, **given)
            given = {}
        else:
            late = middle + late
        longer = path.extend(t, times=late, **given)
        found = different(longer, once)
    return None if found is None else f"{type(flow).__name__} {how} to {first}, {t}: other {found}"


CASES: dict[str, Callable[[int], str | None]] = {
    "error": error,
    "interruption": interruption,
    "extension": extension,
}
