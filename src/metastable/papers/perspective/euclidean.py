"""Claims about tokens that are free to leave the sphere [arXiv:2305.05465], in the frame z = e^{-tV} x."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.drawing import Lines, Series
from metastable.flows import EuclideanAttention, RescaledAttention
from metastable.measure import Measure
from metastable.papers.claim import Claim, Outcome, Setting, as_rows
from metastable.papers.perspective.sources import ESTIMATE
from metastable.papers.reading import listed
from metastable.solve import Path, solve
from metastable.weights import AttentionWeights

THEME = "Tokens in Euclidean space"


def rescaled(w: AttentionWeights, points: np.ndarray, times: np.ndarray, beta: float = 1.0) -> Path:
    """z(t) at the given times."""
    return solve(
        RescaledAttention(w, beta), Measure(points, sphere=False), float(times[-1]), times, rtol=1e-7, atol=1e-9
    )


def attention_matrix(w: AttentionWeights, z: Float[Tensor, "n d"], t: float, beta: float = 1.0) -> np.ndarray:
    """a_ij of tokens of equal mass at x = e^{tV} z, for few tokens."""
    x = z @ torch.linalg.matrix_exp(t * w.V).T
    return torch.softmax(beta * w.queries(x) @ w.keys(x).T, dim=1).numpy()


def frame_experiment(setting: Setting) -> Outcome:
    """Largest distance, by the size of the tokens, of e^{tV} z from x of the flow in its own frame."""
    generator = np.random.default_rng(setting.seed)
    rows, error, still, scaled = [], [], [], []
    for d in (1, 2, 4):
        V = np.eye(d) + 0.4 * generator.normal(size=(d, d)) / math.sqrt(d)
        w = AttentionWeights(V=V, B=np.eye(d) + 0.3 * generator.normal(size=(d, d)))
        start = Measure(0.7 * generator.normal(size=(setting.choose(10, 40), d)), sphere=False)
        times = [0.0, 0.5, 1.0, 1.5]
        plain, in_frame = (
            solve(flow, start, times[-1], times, rtol=1e-9, atol=1e-11)
            for flow in (EuclideanAttention(w, 1.0), RescaledAttention(w, 1.0))
        )
        for t, x, z in zip(times[1:], plain.points[1:], in_frame.points[1:], strict=True):
            size = float(x.abs().max())
            grown = z @ torch.linalg.matrix_exp(t * w.V).T
            error.append(float((grown - x).abs().max()) / size)
            still.append(float((start.points @ torch.linalg.matrix_exp(t * w.V).T - x).abs().max()) / size)
            scaled.append(float((z * math.exp(t * w.V_norm) - x).abs().max()) / size)
            rows.append((d, t, size, error[-1]))
    return Outcome(
        max(error),
        table=as_rows(dict(zip(("d", "t", "size of x", "error"), zip(*rows, strict=True), strict=True))),
        rivals={"growth alone": min(still), "one scale": max(scaled)},
    )


VERTEX_CASES = ((2, 12), (2, 20), (3, 16))
"""Dimension and number of tokens, V = B = I."""
VERTEX_TIME = 14.0
"""e^{-t} of the way to a limit is left."""


def corners(points: np.ndarray) -> np.ndarray:
    """Indices of the corners of the convex hull of distinct points, in any dimension."""
    from scipy.spatial import ConvexHull

    return np.unique(ConvexHull(points).vertices)


def vertex_experiment(setting: Setting) -> Outcome:
    """Share of tokens whose limit is a corner of the convex hull of all limits, or 0."""
    generator = np.random.default_rng(setting.seed)
    share, first, inside = [], [], []
    rows = []
    shown: dict[str, np.ndarray] = {}
    for d, n in setting.choose(VERTEX_CASES, (*VERTEX_CASES, (2, 60), (3, 60), (4, 40))):
        start = generator.normal(size=(n, d))
        w = AttentionWeights(V=np.eye(d), B=np.eye(d))
        times = np.linspace(0.0, VERTEX_TIME, 57)
        path = rescaled(w, start, times)
        end = path.points[-1].numpy()
        distinct = _distinct(end)
        hull = distinct[corners(distinct)] if len(distinct) > d + 1 else distinct
        near = np.linalg.norm(end[:, None] - np.concatenate([hull, np.zeros((1, d))]), axis=2).min(1)
        share.append(float((near < SAME).mean()))
        first.append(len(corners(start)) / n)
        left = np.linalg.norm(end[:, None] - start[corners(start)], axis=2).min(1)
        inside.append(float((left < SAME).mean()))
        rows.append((d, n, len(corners(start)), len(distinct), share[-1]))
        if d == 2:
            shown = {"t": times, "z": path.points.numpy()}
    names = ("d", "n", "corners at first", "limits", "share at corners")
    return Outcome(
        min(share),
        curves=shown,
        table=as_rows(dict(zip(names, zip(*rows, strict=True), strict=True))),
        rivals={"nothing is chosen": min(first), "the first corners": min(inside)},
    )


SAME = 1e-3
"""Distance below which two limits are one: far above e^{-14} = 1e-6, far below the distances of random tokens."""


def _distinct(points: np.ndarray, same: float = SAME) -> np.ndarray:
    """Points with those that are closer than `same` to an earlier one left out."""
    kept: list[np.ndarray] = []
    for point in points:
        if all(np.linalg.norm(point - other) > same for other in kept):
            kept.append(point)
    return np.array(kept)


def vertex_figure(outcome: Outcome) -> Lines:
    """The paths of the tokens of the last case in the plane."""
    paths = outcome.curves["z"]
    series = [
        Series(z[:, 0], z[:, 1], "" if i else "path", colour=0) for i, z in enumerate(paths.transpose(1, 0, 2))
    ]
    series.append(Series(paths[0, :, 0], paths[0, :, 1], "first", "points", colour=7))
    series.append(Series(paths[-1, :, 0], paths[-1, :, 1], "limit", "points", colour=1))
    hull = _distinct(paths[-1])
    order = np.argsort(np.arctan2(*(hull - hull.mean(0)).T[::-1]))
    closed = hull[[*order, order[0]]]
    series.append(Series(closed[:, 0], closed[:, 1], "polytope", "dashed", colour=1))
    return Lines("V = I: rescaled tokens end at the corners of a polytope", "z₁", "z₂", series)


TOP = (1.0, 0.6, 1.5)
"""Top eigenvalues of V; the others are smaller by 0.5 and more."""


def values_experiment(setting: Setting) -> Outcome:
    """Largest number of different limits of <z, phi_1>, V with a simple positive top eigenvalue."""
    generator = np.random.default_rng(setting.seed)
    rows, along, whole, flat = [], [], [], []
    for place, top in enumerate(setting.choose(TOP, (*TOP, 1.0, 1.0))):
        d, n = 2 + place % 2, setting.choose(16, 48)
        levels = top - np.array([0.0, 0.5, 1.1])[:d]
        frame = np.linalg.qr(generator.normal(size=(d, d)))[0]
        V = frame @ np.diag(levels) @ frame.T
        w = AttentionWeights(V=V, B=np.eye(d))
        start = generator.normal(size=(n, d))
        t = 14.0 / top
        z = rescaled(w, start, np.array([0.0, t])).points[-1].numpy()
        along.append(len(_distinct(z @ frame[:, :1])))
        whole.append(len(_distinct(z)))
        flat.append(len(_distinct(start @ frame[:, :1])))
        rows.append((d, n, top, along[-1], whole[-1]))
    names = ("d", "n", "top eigenvalue", "values of <z, phi_1>", "values of z")
    return Outcome(
        float(max(along)),
        table=as_rows(dict(zip(names, zip(*rows, strict=True), strict=True))),
        rivals={"all of z": float(max(whole)), "at first": float(max(flat))},
    )


BOOLEAN_CASES = ((8, 1.0), (8, 0.5), (20, 2.0))
"""Number of tokens and V > 0 of runs in one dimension."""


def boolean_experiment(setting: Setting) -> Outcome:
    """Largest distance of an entry of the attention matrix from 0 and 1; its rank is at most two."""
    generator = np.random.default_rng(setting.seed)
    rows, away, early, repelled = [], [], [], []
    curves: dict[str, np.ndarray] = {}
    ranks = []
    for n, v in setting.choose(BOOLEAN_CASES, (*BOOLEAN_CASES, (60, 1.0), (60, 0.3))):
        start = generator.normal(size=(n, 1))
        w = AttentionWeights(V=[[v]], B=[[1.0]])
        times = np.linspace(0.0, BOOLEAN_TIME / v, 29)
        path = rescaled(w, start, times)
        matrices = [attention_matrix(w, z, float(t)) for z, t in zip(path.points, times, strict=True)]
        gap = np.array([np.minimum(a, 1 - a).max() for a in matrices])
        ranks.append(int(np.linalg.matrix_rank(np.round(matrices[-1]))))
        away.append(float(gap[-1]))
        early.append(float(gap[0]))
        back = AttentionWeights(V=[[-v]], B=[[1.0]])
        z = rescaled(back, start, np.array([0.0, 3.0 / v])).points[-1]
        a = attention_matrix(back, z, 3.0 / v)
        repelled.append(float(np.minimum(a, 1 - a).max()))
        rows.append((n, v, away[-1], ranks[-1]))
        curves[f"n = {n}, V = {v:g}"] = np.stack([times * v, gap])
    return Outcome(
        max(away) if max(ranks) <= 2 else math.inf,
        curves=curves,
        table=as_rows(dict(zip(("n", "V", "distance from 0 and 1", "rank"), zip(*rows, strict=True), strict=True))),
        rivals={"as at first": min(early), "whatever the sign of V": min(repelled)},
    )


BOOLEAN_TIME = 14.0
"""V t of the runs in one dimension: scores grow like e^{2Vt} and tokens approach each other like e^{-Vt}, so that
differences of scores have grown by e^{14} = 1e6."""


def boolean_figure(outcome: Outcome) -> Lines:
    """Distance of attention from a choice, over time."""
    series = [Series(t, np.maximum(gap, 1e-16), name) for name, (t, gap) in outcome.curves.items()]
    title = "d = 1, V > 0: attention becomes a choice"
    return Lines(title, "V t", "largest distance of a_ij from 0 and 1", series, log_y=True, y_floor=1e-12)


CLAIMS = (
    Claim(
        "rescaled-frame",
        "z = e^(-tV) x turns x_i' = V sum_j a_ij x_j into z_i' = V (sum_j a_ij z_j - z_i), for any V (d = 1, "
        "2 and 4).",
        frame_experiment,
        expected=0.0,
        tolerance=1e-6,
        reason="both runs have a tolerance of 1e-9 per step, and e^(tV) multiplies errors by less than a hundred",
        source=ESTIMATE,
        theme=THEME,
        unit="largest error by the size of x",
        rivals={
            "growth alone": "z is at rest: tokens just grow like e^(tV).",
            "one scale": "Tokens are z times the one number e^(t |V|).",
        },
    ),
    Claim(
        "polytope-corners",
        "V = I: every rescaled token tends to a corner of the convex hull of all limits, or to 0 "
        "(12 to 20 random tokens in d = 2 and 3).",
        vertex_experiment,
        expected=1.0,
        tolerance=0.0,
        reason="a count; limits that are closer than 1e-3 are one, and e^(-14) of the way to a limit is left",
        source=ESTIMATE,
        figure=vertex_figure,
        theme=THEME,
        unit="share of tokens",
        rivals={
            "nothing is chosen": "No more tokens are at corners of a polytope than were at first.",
            "the first corners": "They tend to the corners of the convex hull of the first tokens.",
        },
    ),
    Claim(
        "three-values",
        f"V with a simple positive top eigenvalue ({listed(TOP)}): <z, phi_1> has at most three limits.",
        values_experiment,
        expected=3.0,
        tolerance=0.0,
        relation="at most",
        reason="a count; limits that are closer than 1e-3 are one, and e^(-14) of the way to a limit is left",
        source=ESTIMATE,
        theme=THEME,
        unit="different limits",
        rivals={
            "all of z": "z itself has at most three limits.",
            "at first": "Nothing gathers: there are as many values as tokens.",
        },
    ),
    Claim(
        "boolean-attention",
        "d = 1, V > 0: the attention matrix tends to zeros and ones, with rank at most two (V = 0.5 to 2).",
        boolean_experiment,
        expected=0.0,
        tolerance=1e-3,
        reason="differences of scores have grown by e^14 = 1e6, so that tokens are told apart that differed "
        "by 1e-5 at first",
        source=ESTIMATE,
        figure=boolean_figure,
        theme=THEME,
        unit="largest distance from 0 and 1",
        rivals={
            "as at first": "Attention does not change in time.",
            "whatever the sign of V": "It does so for V < 0, too.",
        },
    ),
)
