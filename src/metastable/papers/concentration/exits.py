"""Claims about the exit of iid tokens: the time grows like log n and log beta, with the slopes of `phase_times`.

Tokens start iid on two arcs around the clusters, away from E^perp. From the uniform law the tangent of the angle to
E has the tails of a Cauchy law, and the offset of a cluster falls a little slower than n^{-1/2}.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.flows import SelfAttention
from metastable.measure import Ensemble, Measure
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.concentration.families import competing
from metastable.papers.concentration.sources import ESTIMATE
from metastable.papers.reading import SAMPLING, fine, first_crossing, slope, spanned
from metastable.solve import solve
from metastable.theory import phase_times, spectrum

THEME = "Times of the phases"
ARC = math.pi / 4
"""Half the opening of the arcs."""
BETA, TOKENS = 15.0, 400
"""Inverse temperature of the scaling in n, and number of tokens of the scaling in beta."""
COUNTS = (100, 200, 400), (100, 200, 400, 800, 1600)
BETAS = (10.0, 30.0, 90.0), (10.0, 17.0, 30.0, 52.0, 90.0)
"""Values of n and of beta in a quick and a full run, all with at least seven tokens in a kernel window."""
ESCAPE, B_1 = 1.0, 4.0
"""V_2 - V_1 of `competing()`, the rate at which the offset of a narrow cluster grows; and its B_1."""
QUARTER_ERROR = 0.914
"""Standard error of the first quartile of -ln|Z|, Z Gaussian, times sqrt of the number of samples:
sqrt(p(1-p))/(2 z phi(z)) with p = 1/4 = P(|Z| > z)."""
MARGIN = 1.5, 3.0
"""How much longer than the predicted exit a run is, quick and full: of the offsets |Z| e^{-t}, Z Gaussian, 18% and
4% are then too small to have left, which counts as censored; a quarter leaves 0.1 before it."""
COUNT_RUNS, BETA_RUNS = (160, 240), (60, 160)
"""Starts of every n and of every beta in a quick and a full run; each has two clusters."""


def on_arcs(n: int, seed: int) -> Tensor:
    """n iid tokens, uniform on the arcs around +e1 and -e1."""
    rng = np.random.default_rng(seed)
    return sphere.from_angles(rng.uniform(-ARC, ARC, n) + math.pi * rng.integers(0, 2, n))


def nodes_on_arcs(n: int) -> Measure:
    """n tokens of the same law at its quantiles."""
    half = ARC * (2 * (np.arange(n // 2) + 0.5) / (n // 2) - 1)
    return Measure(sphere.from_angles(np.concatenate([half, half + math.pi])))


def cluster_exits(times: np.ndarray, points: Tensor) -> np.ndarray:
    """Exit times of the clusters that formed at +e1 and -e1 of one system, points (m, n, 2): their median in
    direction e2 passes 1/2 for good.

    The median is blind to single tokens that left on their own (C7). Infinite for a cluster that had not left when
    the run ended.
    """
    exits = []
    for sign in (1.0, -1.0):
        members = points[0][:, 0] * sign > 0
        offset = points[:, members, 1].median(1).values.abs().numpy()
        last = int(np.flatnonzero(offset < 0.5).max(initial=0))
        exits.append(first_crossing(times[last:], offset[last:], 0.5))
    return np.nan_to_num(exits, nan=math.inf)


def quarter_left(exits: np.ndarray) -> float:
    """Time by which a quarter of the clusters has left.

    Clusters that had not left when the run ended are censored, and no quantile before the end depends on when they
    would have left; nor does this one on the few that leave early without having formed.
    """
    return float(np.sort(exits)[round(0.25 * (len(exits) - 1))])


def measured_cell(n: int, beta: float, seeds: Sequence[int], margin: float) -> tuple[dict[str, float], np.ndarray]:
    """Exit of n iid tokens over the seeds, beside `phase_times`; and all exits."""
    w = competing()
    foretold = phase_times(spectrum(w), beta, nodes_on_arcs(n))
    predicted = foretold.exit_mean_field
    times = np.linspace(0, predicted + margin, 4 * int(predicted + margin) + 1)
    starts = Ensemble(torch.stack([on_arcs(n, seed) for seed in seeds]))
    path = solve(SelfAttention(w, beta), starts, t=float(times[-1]), times=times, rtol=1e-4, atol=1e-5)
    exits = np.concatenate([cluster_exits(times, path.points[:, k]) for k in range(len(starts))])
    row = {
        "n": n,
        "beta": beta,
        "clusters": len(exits),
        "not left by the end": int(np.isinf(exits).sum()),
        "a quarter has left": quarter_left(exits),
        "standard error": QUARTER_ERROR / (ESCAPE * math.sqrt(len(exits))),
        "phase_times": predicted,
        "its crossing": foretold.crossing,
    }
    return row, exits


def weighted_slope(x: np.ndarray, y: np.ndarray, error: np.ndarray) -> tuple[float, float]:
    """Slope of y against x by weighted least squares, and its standard error from those of y."""
    weight = 1 / error**2
    centred = x - (weight @ x) / weight.sum()
    spread = float(weight @ centred**2)
    return float((weight * centred) @ y / spread), 1 / math.sqrt(spread)


def scaling(setting: Setting, counts: tuple[int, ...], betas: tuple[float, ...], runs: int, key: str) -> Outcome:
    """Slope of the exit time in the logarithm of `key`, over that of `phase_times`; rivals are given as slopes."""
    rows, curves = [], {}
    cells = [(n, beta) for n in counts for beta in betas]
    for i, (n, beta) in enumerate(cells):
        row, exits = measured_cell(n, beta, setting.seeds(runs, i), setting.choose(*MARGIN))
        rows.append(row)
        curves[f"exits {i}"] = np.where(np.isinf(exits), np.nan, exits)
    x = np.log([float(row[key]) for row in rows])
    columns = {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
    found, error = weighted_slope(x, columns["a quarter has left"], columns["standard error"])
    theory, crossing = slope(x, columns["phase_times"]), slope(x, columns["its crossing"])
    read = RIVAL_SLOPES[key](crossing)
    return Outcome(
        found / theory,
        error / theory,
        # The exits that a rival foretells, with the scatter of those that were seen, have its slope and this error.
        rivals={name: (value / theory, error / theory) for name, value in read.items()},
        curves=curves
        | {
            "x": np.exp(x),
            **columns,
            "predicted on": fine(np.exp(x), 13),
            "predicted": _line(fine(np.exp(x), 13), key),
        },
        table=rows,
        note=f"slope {found:.3f} ± {error:.3f}, phase_times {theory:.3f}",
    )


RIVAL_SLOPES = {
    "n": lambda crossing: {"no dependence on n": 0.0, "offset like 1/n": 1 / ESCAPE},
    "beta": lambda crossing: {"crossing alone": crossing, "growth alone": 1 / (2 * ESCAPE), "no dependence": 0.0},
}
"""Slopes in ln n and in ln beta that a reader might expect instead, by the slope of the crossing time."""


def _line(values: np.ndarray, key: str) -> np.ndarray:
    """`phase_times` along the values of n or beta."""
    s = spectrum(competing())
    found = []
    for value in values:
        n, beta = (round(value), BETA) if key == "n" else (TOKENS, float(value))
        found.append(phase_times(s, beta, nodes_on_arcs(n)).exit_mean_field)
    return np.array(found)


def sampling_error(values: Sequence[float], runs: int) -> float:
    """Standard error of the slope in the logarithm of these values that so many starts of each give."""
    x = np.log(np.asarray(values, dtype=float))
    return weighted_slope(x, x, np.full(len(x), QUARTER_ERROR / (ESCAPE * math.sqrt(2 * runs))))[1]


def few_tokens(n: int, beta: float) -> float:
    """How far few tokens may shift the exit: with m = n/sqrt(pi beta B_1) of them in a kernel window the logarithm
    of their offset is off by 1/(2m)."""
    return math.sqrt(math.pi * beta * B_1) / (2 * n) / ESCAPE


def wide_cluster(beta: float) -> float:
    """How far straight lines may be off: ln(width) of a cluster by 1/(beta B_1) at the crossing, the time by that
    over c."""
    return 1 / (beta * B_1) / spectrum(competing()).g_in


def count_tolerance(setting: Setting) -> float:
    """Of the slope in ln n over 1/(2(V_2 - V_1)): sampling, and few tokens."""
    counts = setting.choose(*COUNTS)
    systematic = few_tokens(counts[0], BETA) / math.log(counts[-1] / counts[0])
    return (SAMPLING * sampling_error(counts, setting.choose(*COUNT_RUNS)) + systematic) * 2 * ESCAPE


def beta_tolerance(setting: Setting) -> float:
    """Of the slope in ln beta over 1/(2c) + 1/(2(V_2 - V_1)): sampling, few tokens, and a wide cluster."""
    betas = setting.choose(*BETAS)
    systematic = (few_tokens(TOKENS, betas[-1]) + wide_cluster(betas[0])) / math.log(betas[-1] / betas[0])
    error = SAMPLING * sampling_error(betas, setting.choose(*BETA_RUNS)) + systematic
    return error / (1 / (2 * spectrum(competing()).g_in) + 1 / (2 * ESCAPE))


def tokens_experiment(setting: Setting) -> Outcome:
    """Exit of n iid tokens at one beta, against ln n."""
    counts = setting.choose(*COUNTS)
    return scaling(setting, counts, (BETA,), setting.choose(*COUNT_RUNS), "n")


def beta_experiment(setting: Setting) -> Outcome:
    """Exit of as many iid tokens, against ln beta."""
    betas = setting.choose(*BETAS)
    return scaling(setting, (TOKENS,), betas, setting.choose(*BETA_RUNS), "beta")


def exit_figure(outcome: Outcome) -> Lines:
    """Every exit, the times by which a quarter has left, and `phase_times` as a function."""
    x, curves = outcome.curves["x"], outcome.curves
    by_n = bool(np.ptp(curves["n"]) > 0)
    each = [(np.full(len(curves[f"exits {i}"]), x[i]), curves[f"exits {i}"]) for i in range(len(x))]
    cloud = np.concatenate([a for a, _ in each]), np.concatenate([b for _, b in each])
    return Lines(
        "Exit of iid tokens, V = diag(1, 2), B = diag(4, 1)",
        f"number of tokens n, β = {BETA:g}" if by_n else f"inverse temperature β, n = {TOKENS}",
        "exit time",
        [
            Series(*cloud, "each cluster", "points", shade=0.0),
            Series(x, curves["a quarter has left"], "a quarter has left", "points", colour=1),
            Series(
                curves["predicted on"],
                curves["predicted"],
                "phase_times (offset of one standard deviation)",
                "dashed",
                colour=1,
            ),
        ],
        log_x=True,
    )


CLAIMS = (
    Claim(
        "exit-time",
        lambda setting: (
            "iid tokens of a symmetric law away from E^perp leave the concentrated phase when the sampled offset "
            "of a cluster, of size n^(-1/2), has grown at rate V_2 - V_1: a time with slope 1/(2(V_2 - V_1)) in "
            f"ln n (n {spanned(setting.choose(*COUNTS))}, beta = {BETA:g})."
        ),
        tokens_experiment,
        expected=1.0,
        tolerance=count_tolerance,
        reason=lambda setting: (
            f"{SAMPLING:g} standard errors of {2 * setting.choose(*COUNT_RUNS)} clusters for each n, and what few "
            f"tokens in a kernel window may shift, {few_tokens(setting.choose(*COUNTS)[0], BETA):.2g} in time"
        ),
        source=ESTIMATE,
        figure=exit_figure,
        theme=THEME,
        unit="slope in ln n / that of phase_times",
        effort=10,
        rivals={
            "no dependence on n": "The mean field alone decides when the phase ends, and n does not matter.",
            "offset like 1/n": "The offset of a cluster falls like 1/n, as of a regular grid.",
        },
    ),
    Claim(
        "exit-time-in-beta",
        lambda setting: (
            "The exit of such tokens waits for the crossing, 1/(2c) in ln beta once clusters are narrow, and for "
            "the growth from the width of the kernel, 1/(2(V_2 - V_1)): the slope of phase_times "
            f"(beta {spanned(setting.choose(*BETAS))}, n = {TOKENS})."
        ),
        beta_experiment,
        expected=1.0,
        tolerance=beta_tolerance,
        reason=lambda setting: (
            f"{SAMPLING:g} standard errors of {2 * setting.choose(*BETA_RUNS)} clusters for each beta, and what "
            f"few tokens ({few_tokens(TOKENS, setting.choose(*BETAS)[-1]):.2g}) and wide clusters "
            f"({wide_cluster(setting.choose(*BETAS)[0]):.2g}) may shift in time"
        ),
        source=ESTIMATE,
        figure=exit_figure,
        theme=THEME,
        unit="slope in ln beta / that of phase_times",
        effort=10,
        rivals={
            "crossing alone": "The phase ends a fixed time after the crossing.",
            "growth alone": "Concentration takes a fixed time, and only the growth depends on beta: 1/(2(V_2 "
            "- V_1)).",
            "no dependence": "The temperature does not matter.",
        },
    ),
)
