"""When each phase begins and ends: concentration, crossing, exit, clustering inside E, and the terminal space."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable import arguments
from metastable.errors import InvalidInput
from metastable.flows.orbit import orbit
from metastable.measure import Measure
from metastable.theory.exits import COLD, Exit, exit_of, one_side_is_empty
from metastable.theory.limit import check_isolated
from metastable.theory.modes import clustering_time
from metastable.theory.spectrum import Spectrum
from metastable.theory.tokens import tokens
from metastable.theory.zero_temperature import nearest_point_distance

MOST_TOKENS = 2000
"""Most tokens whose exact orbits are used to locate a time; of more, a random choice by mass."""
FRAMES = 240
"""Times at which their orbits are looked at, between which curves are interpolated log-linearly."""
TAIL_SAFE_RANDOM, TAIL_SAFE_NODES = 3.5, 2.5
"""The safe curve is not trusted beyond (log n - q)/(k g_out), q for iid tokens and for deterministic nodes (N7)."""
SAFE_SHARE = 0.6
"""Share of the mean-field exit time beta Delta/g_out up to which the safe curve is trusted (N7)."""


LARGEST_SEED = 2**63 - 1
"""Largest seed of a torch generator."""
_NO_PHASE = {
    "identity": "never: M is a multiple of the identity, and at zero temperature every token is its own limit",
    "rotation": "no phase: a complex pair leads M, and tokens turn for ever",
    "jordan": "no phase: the leading eigenvalue of M is defective, and tokens approach it algebraically",
}


@dataclass(frozen=True)
class Times:
    """Times of the phases; infinite when the event does not happen, NaN when it is not defined for these weights.

    concentration:  the zero-temperature distance to the limit falls to sqrt(log(beta+1)/beta).
    crossing:       median width of the clusters = (beta |B^T e|)^{-1/2}: from M's regime to V's (t_x, C2).
    exit:           end of the concentrated phase, the earlier of mean-field time and the tokens' own limit (N4).
    exit_uncertainty: the exit is known to this factor: an order of magnitude where Delta > 0, see `exits`.
    exit_mean_field, exit_tokens: the two candidates; case says which of the situations of Delta applies.
    clustering:     tokens on E (dim E >= 2) have gathered in clusters (G2).
    safe:           the safe curve is trusted up to here, never beyond the exit (N7); 0 where it is not at all.
    ends:           in words, what ends the concentrated phase first.
    """

    concentration: float
    crossing: float
    exit: float
    exit_uncertainty: float
    exit_mean_field: float
    exit_tokens: float
    clustering: float
    safe: float
    case: str
    ends: str

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            text = name in ("case", "ends")
            arguments.instance(value, name, str if text else float, "a text" if text else "a float")

    def __repr__(self) -> str:
        return (
            f"Times(concentration={self.concentration:.4g}, crossing={self.crossing:.4g}, exit={self.exit:.4g}, "
            f"clustering={self.clustering:.4g}, safe={self.safe:.4g}, {self.case!r})"
        )


@dataclass(frozen=True, eq=False)
class Terminal:
    """The terminal phase (C4, N5): narrow clusters obey c' = P_c V c and go to the dominant space of V.

    Clusters that attend their antipodes obey c_+' = P V c_-, c_-' = P V c_+ instead: they go to the smallest
    eigenvalue of V as an antipodal pair, or meet on the largest if that is larger in size. kind is the space's
    ("point pair", "subsphere", "identity", "rotation", "jordan"), or "open" where no formula is known: then `space`
    is empty, the numbers are NaN and the sentence says why.
    """

    space: Float[Tensor, "d k"]
    kind: str
    rate: float
    frequency: float
    eigenvalue: float
    sentence: str

    def __post_init__(self) -> None:
        if arguments.instance(self.space, "space", Tensor, "a tensor of shape (d, k)").ndim != 2:
            raise InvalidInput(f"space must be a tensor of shape (d, k), got {arguments.shown(self.space)}")
        for name, value in vars(self).items():
            text = name in ("kind", "sentence")
            if name != "space":
                arguments.instance(value, name, str if text else float, "a text" if text else "a float")

    def __repr__(self) -> str:
        return f"Terminal({self.kind!r}, dim {self.space.shape[1]}, rate={self.rate:.4g}: {self.sentence})"


def phase_times(s: Spectrum, beta: float, rho: Measure, deterministic: bool = False, seed: int = 0) -> Times:
    """All times of `Times` for one head, from the exact zero-temperature orbits of (at most MOST_TOKENS of) the
    tokens.

    The exit and its mechanism are those of `exits`; NaN where no formula is known, and `case` then says why. `safe`
    is an estimate here (N7); a forecast checks it against its predicted curve.
    """
    s = arguments.instance(s, "s", Spectrum, "a Spectrum such as spectrum(w)")
    beta = arguments.number(beta, "beta", above=0)
    rho = tokens(rho, s.weights.d)
    deterministic = arguments.flag(deterministic, "deterministic")
    seed = arguments.integer(seed, "seed", least=0, most=LARGEST_SEED)
    k, n = s.dimension, rho.n
    if s.kind not in ("point pair", "subsphere"):
        nothing = math.nan if s.kind in ("rotation", "jordan") else math.inf
        inside = _inside(s, beta, n) if s.kind == "identity" else math.nan
        begin = 0.0 if s.kind == "identity" else math.nan
        ends = _first(Exit(nothing, nothing, s.kind, _NO_PHASE[s.kind]), inside)
        return Times(begin, nothing, nothing, math.nan, nothing, nothing, inside, 0.0, s.kind, ends)
    check_isolated(s)
    concentration, crossing = _concentration_and_crossing(s, beta, rho, seed)
    leaving = exit_of(s, beta, rho, crossing)
    q = TAIL_SAFE_NODES if deterministic else TAIL_SAFE_RANDOM
    hold = max(SAFE_SHARE * beta * s.delta / s.g_out, math.log(max(beta, 1.0)) / (2 * s.g_in))
    # What comes after M's regime is not known where the exit is not.
    last = crossing if math.isnan(leaving.time) else leaving.time
    safe = min(max(0.0, math.log(n) - q) / (k * s.g_out), hold, last)
    inside = _inside(s, beta, n) if k > 1 else math.inf
    return Times(
        concentration=concentration,
        crossing=crossing,
        exit=leaving.time,
        exit_uncertainty=leaving.uncertainty,
        exit_mean_field=leaving.mean_field,
        exit_tokens=leaving.tokens,
        clustering=inside,
        safe=safe,
        case=leaving.case,
        ends=_first(leaving, inside),
    )


def _first(leaving: Exit, clustering: float) -> str:
    """Which comes first, the exit or the clustering inside E, in words."""
    if not clustering < (math.inf if math.isnan(leaving.time) else leaving.time):
        return leaving.ends
    return f"clustering inside E: tokens on E gather in clusters; then {leaving.ends}"


def terminal(s: Spectrum, rho: Measure | None = None) -> Terminal:
    """Where narrow clusters go in the end, and how fast; rho, if given, says whether both antipodes hold mass."""
    s = arguments.instance(s, "s", Spectrum, "a Spectrum such as spectrum(w)")
    rho = None if rho is None else tokens(rho, s.weights.d)
    if s.weights.V_norm == 0:
        return Terminal(s.V.space, s.V.kind, 0.0, 0.0, 0.0, "V is zero: nothing moves")
    antipodal = s.attends == "antipode"
    if (
        s.kind in ("point pair", "subsphere")
        and not s.clusters_stay
        and s.delta_vanishes
        and s.attends != "neither"
        and not s.clusters_narrow
    ):
        return _open(s, "V pushes clusters on E apart and they keep a width")
    if s.attends == "neither":
        return _open(
            s, "<e, Be> has no sign on E, so that some clusters attend themselves and some their antipodes"
        )
    if antipodal and rho is not None and one_side_is_empty(s, rho):
        return _open(s, "clusters on E attend their antipodes, and one side is empty")
    if antipodal and s.pairs_stay_antipodal is None:
        return _open(s, "V is as large on its bottom as on its top, and antipodal clusters may stay so or meet")
    pairs = antipodal and bool(s.pairs_stay_antipodal)
    v = s.bottom_of_V if pairs else s.V
    wanted = "antipode" if pairs else "itself"
    if not s.clusters_stay and v.value <= v.tolerance * s.weights.V_norm:
        return _open(s, "V pushes clusters apart wherever they go, and they keep a width")
    # Clusters that have met are one cluster, and one cluster attends itself whatever the sign of <c, Bc>.
    if not (s.clusters_stay or (antipodal and not pairs)) and s.attention_on(v.space) != wanted:
        end = "bottom" if pairs else "top"
        return _open(s, f"clusters leave for the {end} of V, where <c, Bc> has another sign than on E")
    number = -v.value if pairs else v.value
    value = f"{number:.4g}"
    who = "antipodal pairs of clusters" if pairs else "antipodal clusters meet and" if antipodal else "clusters"
    which = "smallest" if pairs else "leading"
    rate = v.gap if math.isfinite(v.gap) else 0.0
    if pairs and v.kind in ("point pair", "subsphere"):
        # The pair can also lose its symmetry, towards the top of V.
        rate = min(rate, v.value - s.V.value)
    sentence = {
        "rotation": f"{who} turn for ever in the plane of V's {which} pair, angular speed {v.frequency:.4g}",
        "jordan": f"{who} approach the defective {which} direction of V (eigenvalue {value}) algebraically",
        "identity": f"V is a multiple of the identity: {who} stay where they are",
    }.get(v.kind, f"{who} align with the {which} eigenspace of V (eigenvalue {value}) at rate {rate:.4g}")
    return Terminal(v.space, v.kind, rate, v.frequency, number, sentence)


def _open(s: Spectrum, why: str) -> Terminal:
    space = torch.zeros(s.weights.d, 0, dtype=torch.float64)
    return Terminal(space, "open", math.nan, math.nan, math.nan, f"out of range: {why}; no formula for the end")


def _inside(s: Spectrum, beta: float, n: int) -> float:
    """Clustering inside E: softmax attention on a sphere of dimension k with V = l1/b and scores beta b."""
    b = float(np.linalg.norm(s.weights.B.numpy().T @ s.M.space.numpy(), 2))
    if s.dimension < 2 or s.M.value <= 0 or b == 0:
        return math.inf
    return clustering_time(n, min(beta * b, COLD), s.dimension, s.M.value / b)


def _concentration_and_crossing(s: Spectrum, beta: float, rho: Measure, seed: int) -> tuple[float, float]:
    generator = torch.Generator().manual_seed(seed)
    x, mass = rho.points, rho.mass
    if rho.n > MOST_TOKENS:
        rows = torch.multinomial(mass, MOST_TOKENS, replacement=False, generator=generator)
        x, mass = x[rows], mass[rows] / mass[rows].sum()
    rate = min(s.g_in, s.dimension * s.g_out / 2)
    horizon = (0.5 * math.log1p(max(beta, 1.0)) + 3) / rate
    times = np.concatenate([[0.0], np.linspace(0, 2 * horizon, FRAMES)[1:]])
    path = orbit(s.weights.M, s.weights.B, x, times)
    distance = nearest_point_distance(s.projector, path, mass).numpy()
    image = path @ s.projector.to(path).T
    next_space = s.M.next_space.to(path)
    width = ((path - image) @ next_space).square().sum(2) / next_space.shape[1] / image.square().sum(2)
    order = torch.argsort(width, dim=1)
    half = (torch.cumsum(mass[order], dim=1) < 0.5).sum(1, keepdim=True)
    median = torch.gather(torch.gather(width, 1, order), 1, half.clamp(max=len(mass) - 1))[:, 0].numpy()
    window = s.gap / s.g_in * beta
    return (
        _first_below(times, distance, math.sqrt(math.log1p(beta) / max(beta, 1e-300))),
        _first_below(times, median, 1 / window),
    )


def _first_below(times: np.ndarray, values: np.ndarray, level: float) -> float:
    """First time at which a positive curve falls below the level, log-linear in between; inf if it does not."""
    below = np.nonzero(values <= level)[0]
    if not len(below):
        return math.inf
    i = int(below[0])
    if i == 0:
        return 0.0
    a, b = math.log(values[i - 1]), math.log(max(values[i], 1e-300))
    return float(times[i - 1] + (times[i] - times[i - 1]) * (a - math.log(level)) / (a - b))
