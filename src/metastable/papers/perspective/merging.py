"""Claims about large beta: clusters rest for times exponential in beta and merge one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from metastable.drawing import Lines, Series
from metastable.measure import Measure
from metastable.observe import cluster_count
from metastable.papers.claim import Claim, Outcome, Setting, as_rows
from metastable.papers.perspective.sources import ESTIMATE, METASTABILITY
from metastable.papers.perspective.tokens import attention
from metastable.papers.reading import farthest, listed, slope
from metastable.solve import Event, Path, solve
from metastable.theory import merging_time

THEME = "Saddle to saddle"
ANGLES = (0.8, 0.95, 1.1)
"""Angles of three pairs of clusters; pairs lie in planes orthogonal to each other."""
MASSES = ((1.0, 1.0), (2.0, 1.0), (1.0, 3.0))
"""Masses of the clusters of a pair, by ratio."""
PER_CLUSTER = 3
SPREAD = 0.003
"""How far tokens stand from the centre of their cluster at first: beta times its square is what it changes."""
MET = 0.2
"""Angle at which two clusters count as met; what is left takes a time of order one."""


def pairs_of_clusters(angles: Sequence[float], seed: int) -> tuple[Measure, Float[np.ndarray, "k 2"]]:
    """Tokens around the ends of each pair's arc, and the masses of the clusters by pair."""
    generator = np.random.default_rng(seed)
    k = len(angles)
    points, mass = [], []
    for pair, angle in enumerate(angles):
        for side, share in zip((-0.5, 0.5), MASSES[pair % len(MASSES)], strict=True):
            centre = np.zeros(2 * k)
            centre[2 * pair : 2 * pair + 2] = math.cos(side * angle), math.sin(side * angle)
            noise = generator.normal(size=(PER_CLUSTER, 2 * k))
            points.append(centre + SPREAD * (noise - noise.mean(0)))
            mass += [share / PER_CLUSTER] * PER_CLUSTER
    rho = Measure(np.concatenate(points), mass)
    return rho, rho.mass.numpy().reshape(k, 2, PER_CLUSTER).sum(2)


def _angle(points: Float[np.ndarray, "n d"], pair: int) -> float:
    """Angle between the centres of the two clusters of a pair."""
    first = 2 * PER_CLUSTER * pair
    a, b = (points[first + s : first + s + PER_CLUSTER].mean(0) for s in (0, PER_CLUSTER))
    a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
    return 2 * math.atan2(float(np.linalg.norm(a - b)), float(np.linalg.norm(a + b)))


def merge(rho: Measure, pairs: int, beta: float, t: float, times: np.ndarray | None = None) -> Path:
    """The softmax flow with an event for every pair that meets."""
    events = [
        Event(lambda x, m, pair=pair: _angle(x.numpy(), pair), MET, -1, name=f"pair {pair}")  # type: ignore[misc]
        for pair in range(pairs)
    ]
    return solve(attention(rho.d, beta), rho, t, times, rtol=1e-7, atol=1e-9, events=events)


def merge_betas(setting: Setting) -> tuple[float, ...]:
    """Inverse temperatures of the merging times."""
    return tuple(setting.choose((10.0, 14.0), (10.0, 12.0, 14.0, 16.0), (10.0, 12.0)))


def time_experiment(setting: Setting) -> Outcome:
    """Times at which well separated pairs of clusters meet, over those of the equation of two clusters."""
    rows, found, equal, plain = [], [], [], []
    for beta in merge_betas(setting):
        rho, masses = pairs_of_clusters(ANGLES, setting.seed)
        start = [_angle(rho.points.numpy(), pair) for pair in range(len(ANGLES))]
        # no other cluster of the same plane is there, so that only the masses of the pair count
        exact = [merging_time(a, MET, beta, *m) for a, m in zip(start, masses, strict=True)]
        path = merge(rho, len(ANGLES), beta, 1.2 * max(exact))
        crossed = {crossing.name: crossing.time for crossing in path.events}
        for pair, angle in enumerate(start):
            time = crossed[f"pair {pair}"]
            found.append(time / exact[pair])
            plain.append(time / merging_time(angle, MET, 0.0))
            if masses[pair, 0] != masses[pair, 1]:
                equal.append(time / merging_time(angle, MET, beta))
            rows.append((beta, ANGLES[pair], masses[pair, 0] / masses[pair, 1], time, exact[pair]))
    names = ("beta", "angle", "ratio of masses", "time of the tokens", "time of two clusters")
    return Outcome(
        farthest(found, 1.0),
        curves={"row": np.array(rows)},
        table=as_rows(dict(zip(names, zip(*rows, strict=True), strict=True))),
        rivals={
            "whatever the masses": min(equal, key=lambda value: abs(value - 1)),
            "whatever beta": min(plain, key=lambda value: abs(value - 1)),
        },
    )


def time_figure(outcome: Outcome) -> Lines:
    """Merging times against the angle."""
    rows, series = outcome.curves["row"], []
    grid = np.linspace(0.7, 1.2, 81)
    for place, beta in enumerate(np.unique(rows[:, 0])):
        for style, ratio in zip(("line", "dashed", "dotted"), (1.0, 2.0, 3.0), strict=True):
            share = ratio / (1 + ratio) / len(ANGLES)
            exact = [merging_time(a, MET, beta, share, 1 / len(ANGLES) - share) for a in grid]
            series.append(Series(grid, exact, f"β = {beta:g}, masses {ratio:g} : 1", style, colour=place))
        chosen = rows[rows[:, 0] == beta]
        series.append(Series(chosen[:, 1], chosen[:, 3], "" if place else "tokens", "points", colour=place))
    return Lines("Merging times of pairs of clusters", "angle between the clusters", "time", series, log_y=True)


LONG_ANGLES = (1.0, 1.15)
"""Angles of the pairs whose merging times are followed in beta."""


def long_betas(setting: Setting) -> np.ndarray:
    """Inverse temperatures between which the exponent is fitted."""
    return np.array(setting.choose((12.0, 15.0, 18.0), (12.0, 15.0, 18.0, 21.0), (12.0, 14.0, 16.0)))


def long_experiment(setting: Setting) -> Outcome:
    """d log(beta T)/d beta over 1 - cos(angle), T the time at which a pair of clusters meets."""
    betas = long_betas(setting)
    times = np.zeros((len(LONG_ANGLES), len(betas)))
    for place, beta in enumerate(betas):
        rho, masses = pairs_of_clusters(LONG_ANGLES, setting.seed)
        last = max(merging_time(a, MET, beta, *m) for a, m in zip(LONG_ANGLES, masses, strict=True))
        for crossing in merge(rho, len(LONG_ANGLES), float(beta), 1.2 * last).events:
            times[int(crossing.name.removeprefix("pair ")), place] = crossing.time
    unit = 1 - np.cos(LONG_ANGLES)

    def exponents(durations: np.ndarray) -> list[float]:
        return [slope(betas, np.log(betas * row)) / u for row, u in zip(durations, unit, strict=True)]

    return Outcome(
        farthest(exponents(times), 1.0),
        curves={"beta": betas} | {f"{a:g}": row for a, row in zip(LONG_ANGLES, times, strict=True)},
        table=as_rows(
            {"beta": betas} | {f"T at angle {a:g}": row for a, row in zip(LONG_ANGLES, times, strict=True)}
        ),
        rivals={
            "a power of beta": farthest(exponents(np.tile(betas**2, (2, 1))), 1.0),
            "whatever beta": farthest(exponents(np.ones((2, len(betas)))), 1.0),
            "the chord, not its square": farthest(np.array(exponents(times)) * unit / np.array(LONG_ANGLES), 1.0),
        },
    )


def long_figure(outcome: Outcome) -> Lines:
    """Merging times against beta."""
    beta = outcome.curves["beta"]
    grid, series = np.linspace(beta[0], beta[-1], 81), []
    for place, angle in enumerate(LONG_ANGLES):
        share = np.array(MASSES[place]) / sum(map(sum, MASSES[: len(LONG_ANGLES)]))
        exact = [merging_time(angle, MET, b, *share) for b in grid]
        series.append(Series(grid, exact, f"angle {angle:g}", colour=place))
        series.append(Series(beta, outcome.curves[f"{angle:g}"], "" if place else "tokens", "points", colour=place))
    return Lines("Clusters last exponentially long", "inverse temperature β", "merging time T", series, log_y=True)


WINDOW = 0.1
"""Half the width, as part of the merging time, of the stretch around it in which the energy is to rise."""
STAIR_BETA = 14.0
STAIR_ANGLES = (1.0, 1.15, 1.3)
"""Angles of the pairs of the staircase: the first of them meets at a time of 35."""


def staircase_experiment(setting: Setting) -> Outcome:
    """Share of the rise of the energy that falls within 10% of the times at which the number of clusters drops."""
    rows, shares, steady, slow = [], [], [], []
    curves: dict[str, np.ndarray] = {}
    for beta in setting.choose((STAIR_BETA,), (STAIR_BETA, 16.0), (STAIR_BETA,)):
        rho, masses = pairs_of_clusters(STAIR_ANGLES, setting.seed)
        clusters = 2 * len(STAIR_ANGLES)
        exact = [merging_time(a, MET, beta, *m) for a, m in zip(STAIR_ANGLES, masses, strict=True)]
        times = np.concatenate([[0.0], np.geomspace(1.0, 1.3 * max(exact), 160)])
        # two clusters are one when the closest of their tokens are closer than 0.1
        events = [
            Event(lambda x, m: cluster_count(Measure(x, m), angle=0.1), clusters - k - 0.5, -1, name=str(k + 1))
            for k in range(len(STAIR_ANGLES))
        ]
        flow = attention(rho.d, beta)
        path = solve(flow, rho, float(times[-1]), times, rtol=1e-7, atol=1e-9, events=events)
        energy = np.array([flow.energy(x, path.mass) for x in path.points])
        # the first unit of time, in which the tokens of a cluster gather, is not what is looked at
        merged = np.array([crossing.time for crossing in path.events])
        near = (np.abs(times[1:, None] / merged - 1) < WINDOW).any(1)

        def share(values: np.ndarray, near: np.ndarray = near) -> float:
            steps = np.diff(values[1:])
            return float(steps[near[1:]].sum() / steps.sum())

        shares.append(share(energy) if len(merged) == len(STAIR_ANGLES) else math.nan)
        steady.append(share(times))
        slow.append(share(np.log(np.maximum(times, 1e-9))))
        rows += [(beta, clusters - k - 1, time) for k, time in enumerate(merged)]
        if beta == STAIR_BETA:
            curves = {"t": times[1:], "energy": energy[1:], "merged": merged}
    return Outcome(
        min(shares),
        curves=curves,
        table=as_rows(dict(zip(("beta", "clusters left", "time"), zip(*rows, strict=True), strict=True))),
        rivals={"a steady rise": max(steady), "steady in log t": max(slow)},
    )


def staircase_figure(outcome: Outcome) -> Lines:
    """Energy over the logarithm of time."""
    t, energy = outcome.curves["t"], outcome.curves["energy"]
    return Lines(
        f"Energy of six clusters that merge in pairs, β = {STAIR_BETA:g}",
        "time t",
        "energy E over its first value",
        [Series(t, energy / energy[0], "E(t)/E(0)")],
        log_x=True,
        moments={float(time): f"{5 - k} clusters" for k, time in enumerate(outcome.curves["merged"])},
    )


CLAIMS = (
    Claim(
        "merging-times",
        lambda setting: (
            "Well separated clusters meet in pairs at the times of the equation theta' = -(a_12 + a_21) sin "
            "theta of two "
            f"clusters alone (beta = {listed(merge_betas(setting))}, angles {listed(ANGLES)}, masses 1:1 to 1:3)."
        ),
        time_experiment,
        expected=1.0,
        tolerance=0.03,
        reason="other clusters, at 90 degrees, pull by e^(-beta cos theta) of the pair's own pull: 0.01 for "
        "the widest pair "
        "at beta = 10; the spread of a cluster adds beta 0.003^2",
        source=ESTIMATE,
        figure=time_figure,
        theme=THEME,
        unit="time of the tokens over that of two clusters",
        effort=2,
        rivals={
            "whatever the masses": "The time does not depend on the masses: it is that of equal ones.",
            "whatever beta": "The time is that of beta = 0.",
        },
    ),
    Claim(
        "exponentially-long",
        lambda setting: (
            "Separated clusters last exponentially long: their merging time grows like e^(beta (1 - cos "
            "theta))/beta "
            f"(beta = {listed(long_betas(setting))}, angles {listed(LONG_ANGLES)})."
        ),
        long_experiment,
        expected=1.0,
        tolerance=0.1,
        reason="the next order of beta T is a factor 1 + c/beta, c = 2 cos(theta)/sin^2(theta), which "
        "changes its exponent by "
        "c/beta^2: by 0.02 of it; and the order after that by as much",
        source=METASTABILITY,
        figure=long_figure,
        theme=THEME,
        unit="exponent over 1 - cos theta",
        effort=2,
        rivals={
            "a power of beta": "The merging time grows like beta^2.",
            "whatever beta": "The merging time does not depend on beta.",
            "the chord, not its square": "The exponent is theta and not 1 - cos theta.",
        },
    ),
    Claim(
        "energy-staircase",
        "Clusters merge one by one, and the energy is a staircase: it rises when the number of clusters "
        "drops, within a "
        "tenth of that time, and rests in between (beta = 14, six clusters).",
        staircase_experiment,
        expected=0.95,
        tolerance=0.0,
        reason="a pair's energy rises in the last few units of time before it merges, and the earliest "
        "merges at 35",
        source=METASTABILITY,
        figure=staircase_figure,
        theme=THEME,
        relation="at least",
        unit="share of the rise at a merging",
        effort=2,
        rivals={
            "a steady rise": "The energy rises steadily.",
            "steady in log t": "The energy rises steadily in the logarithm of time.",
        },
    ),
)
