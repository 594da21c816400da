"""Node solver on the circle: the flow map theta_t(s) on labels s that are dense where the flow will stretch.

    d theta/dt (t, s) = v[rho_t](theta(t, s)),  rho_t = theta_t # (mu(s) ds),  mu(s) = rho_0(theta_0(s)) theta_0'(s)
With a smooth periodic label s the trapezoidal rule integrates against rho_t with spectral accuracy, masses never
change and nothing is interpolated. The labels come from a scout: a cheap run that inserts a node wherever the gap
between neighbours exceeds the width of the attention kernel, kappa^{-1/2}, kappa = beta |B|. What it inserted,
smoothed, is the density of nodes. So the separatrix of the true flow is found, not that of zero temperature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import solve_ivp
from scipy.interpolate import PchipInterpolator

from metastable.errors import SolveError
from metastable.flows.flow import Flow
from metastable.meanfield.circle import CircleLaw, angular_velocity
from metastable.meanfield.piecewise import TWO_PI, Array

SMOOTHING = 3.0
"""Width of the smoothing of the node density in local node spacings: the poles of the label map lie 1.5 pi of
them off the real axis, so that the trapezoidal rule on the nodes is not limited by it (e^{-30})."""

JUMP = 0.15
"""Largest change of the field between neighbours, relative to its maximum."""


@dataclass(frozen=True)
class Labels:
    """A smooth label map by its inverse, s(theta) = sum_j (count_j/2) tanh((theta - centre_j)/width_j) + images.

    ds/dtheta is the density of nodes, a sum of bumps as wide as a few local spacings, hence analytic at the scale
    of the nodes everywhere.
    """

    origin: float
    centre: Array
    count: Array
    width: Array

    @property
    def needed(self) -> int:
        """Nodes that the scout asks for."""
        return math.ceil(self.count.sum())

    def counting(self, theta: Array) -> tuple[Array, Array]:
        """s(theta) - s(origin), scaled to one per turn, and its derivative."""
        s, density = self._sums(theta)
        start, _ = self._sums(np.array([self.origin]))
        total = self.count.sum()
        return (s - start) / total, density / total

    def _sums(self, theta: Array) -> tuple[Array, Array]:
        s, density = np.zeros_like(theta), np.zeros_like(theta)
        for block in np.array_split(np.arange(len(theta)), max(1, len(theta) * len(self.centre) // 2**20)):
            for turn in (-TWO_PI, 0.0, TWO_PI):
                rise = np.tanh((theta[block, None] - self.centre - turn) / self.width)
                s[block] += rise @ self.count / 2
                density[block] += (1 - rise**2) @ (self.count / self.width) / 2
        return s, density

    def nodes(self, n: int) -> tuple[Array, Array]:
        """theta_0(s_j) and theta_0'(s_j) at s_j = j/n, by Newton's method; n nodes are every other one of 2n."""
        target = np.arange(n) / n
        knots = np.concatenate([self.centre, [self.origin, self.origin + TWO_PI]])
        knots = np.unique(knots[(knots >= self.origin) & (knots <= self.origin + TWO_PI)])
        at_knots, _ = self.counting(knots)
        cell = np.clip(np.searchsorted(at_knots, target, side="right") - 1, 0, len(knots) - 2)
        low, high = knots[cell], knots[cell + 1]
        theta = np.interp(target, at_knots, knots)
        for _ in range(60):
            s, density = self.counting(theta)
            low, high = np.where(s < target, theta, low), np.where(s > target, theta, high)
            newton = theta - (s - target) / density
            inside = (newton >= low) & (newton <= high)
            moved = np.where(inside, newton, (low + high) / 2)
            done = np.abs(moved - theta).max() <= 4e-16 * TWO_PI
            theta = moved
            if done:
                break
        return theta, 1 / self.counting(theta)[1]


def label_map(
    flow: Flow, law: CircleLaw, t: float, kappa: float, *, negligible: float, max_nodes: int, rounds: int = 8
) -> tuple[Labels, bool]:
    """The labels that a run up to time t needs, and whether they suffice.

    The label of the separatrix must be known to e^{-stretch}, finer than one scout finds it. So a run on its labels
    goes as far as they resolve the flow, and the next scout starts there: its error is damped by all the stretching
    before, and two or three rounds settle. Gaps between neighbours that carry less than `negligible` may stay open.
    """
    # Never wider than 0.11, whatever the temperature: the density of nodes changes by e^{widest} from one node to
    # the next on its way to a separatrix, and a peak of it must survive the smoothing over `SMOOTHING` nodes.
    widest = min(0.9 / math.sqrt(max(kappa, 1e-300)), 0.11)
    times = np.linspace(0.0, t, 2 + math.ceil(8 * t))
    scout = _scout(flow, law, t, widest, negligible, _Scout.begin(law, widest))
    reached = -1.0
    for _ in range(rounds):
        found = scout.labels_asked()
        n = found.needed
        if n > max_nodes:
            return found, False
        labels = found.nodes(n)[0]
        carries = _interval_masses(law, labels) > negligible
        theta, mass = flow_map(flow, law, found, n, times, atol=1e-9, open_gap=1.5 * widest, watched=carries)
        if len(theta) == len(times):
            return found, True
        if float(times[len(theta) - 1]) <= reached:
            # No label separates the tokens any more: the flow tears them apart faster than float64 can follow.
            return found, False
        reached = float(times[len(theta) - 1])
        need = np.max(
            [
                _need(x, angular_velocity(flow, time, x, mass), widest)
                for time, x in zip(times, theta, strict=False)
            ],
            axis=0,
        )
        demand = np.maximum(np.where(carries, need, 0.0) / _gaps(labels), _base_demand(law, labels, widest))
        scout = _scout(
            flow, law, t, widest, negligible, _Scout(labels, theta[-1], demand, float(times[len(theta) - 1]))
        )
    return found, False


def flow_map(
    flow: Flow,
    law: CircleLaw,
    labels: Labels,
    n: int,
    times: Array,
    *,
    atol: float,
    open_gap: float = math.inf,
    watched: NDArray[np.bool_] | None = None,
) -> tuple[Array, Array]:
    """theta at n nodes and the given increasing times, (m, n), and the masses (n,), by an eighth-order method.

    The run ends early, with fewer times, when a watched gap between neighbours exceeds `open_gap`.
    """
    theta, slope = labels.nodes(n)
    mass = np.clip(law.density(theta) * slope, 0.0, None)
    mass = mass / mass.sum()
    end = float(times[-1])
    if end == 0:
        return np.broadcast_to(theta, (len(times), n)).copy(), mass

    def gap_opens(_: float, x: Array) -> float:
        gap = _gaps(x)
        return open_gap - float((gap if watched is None else gap[watched]).max())

    gap_opens.terminal = True  # type: ignore[attr-defined]
    solution = solve_ivp(
        lambda time, x: angular_velocity(flow, time, x, mass),
        (0.0, end),
        theta,
        method="DOP853",
        t_eval=times,
        events=gap_opens if open_gap < math.inf else None,
        rtol=1e-13,
        atol=atol,
    )
    if not solution.success:
        raise SolveError(f"the flow map could not be integrated to t = {end:.6g}: {solution.message}")
    return solution.y.T, mass


@dataclass(frozen=True)
class _Scout:
    """Labels (K,), their positions at a time, and the nodes per unit of label that each interval asks for."""

    labels: Array
    theta: Array
    demand: Array
    time: float = 0.0

    @classmethod
    def begin(cls, law: CircleLaw, widest: float) -> _Scout:
        """Labels as dense as the kernel and rho_0 ask for."""
        fine = np.linspace(0, TWO_PI, 4097)
        count = np.concatenate([[0.0], np.cumsum(_base_demand(law, fine[:-1], widest))]) * TWO_PI / 4096
        n = math.ceil(count[-1])
        labels = np.interp(np.arange(n) * count[-1] / n, count, fine)
        return cls(labels, labels, _base_demand(law, labels, widest))

    def labels_asked(self) -> Labels:
        """Bumps on the intervals, each as wide as `SMOOTHING` of the node spacings asked for there."""
        gap = _gaps(self.labels)
        width = np.minimum(SMOOTHING / self.demand, 0.3)
        return Labels(float(self.labels[0]), self.labels + gap / 2, self.demand * gap, width)


def _scout(flow: Flow, law: CircleLaw, t: float, widest: float, negligible: float, start: _Scout) -> _Scout:
    """Go on to time t with RK4, inserting a node into every gap that opens."""
    labels, theta, demand, time = start.labels, start.theta, start.demand, start.time
    while time < t:
        mass = _cell_masses(law, labels)
        speed = angular_velocity(flow, time, theta, mass)
        need = _need(theta, speed, widest)
        carries = _interval_masses(law, labels) > negligible
        demand = np.maximum(demand, np.where(carries, need, 0.0) / _gaps(labels))
        split = carries & (need > 1) & (_gaps(labels) > 1e-14)
        if split.any():
            labels, theta, demand = _inserted(labels, theta, demand, split)
            mass = _cell_masses(law, labels)
            speed = angular_velocity(flow, time, theta, mass)
        h = min(t - time, 0.3 / _steepness(theta, speed))
        theta = np.maximum.accumulate(_rk4(flow, time, theta, mass, h, speed))
        time = t if h == t - time else time + h
    return _Scout(labels, theta, demand, t)


def _need(theta: Array, speed: Array, widest: float) -> Array:
    """Nodes that each gap asks for: its width in units of `widest`, or the jump of the field across it.

    Between two clusters the attended mean flips within 1/kappa, less than the kernel's width, and tears tokens
    apart at the rate kappa; a node per fifteen percent of the largest speed resolves that flip.
    """
    jump = np.abs(np.diff(speed, append=speed[0]))
    return np.maximum(np.abs(_gaps(theta)) / widest, jump / (JUMP * max(float(np.abs(speed).max()), 1e-300)))


def _base_demand(law: CircleLaw, theta: Array, widest: float) -> Array:
    """Nodes per radian that the kernel and rho_0 ask for before anything moves."""
    return max(64.0, TWO_PI / widest) * (1 + law.density(theta).clip(0)) / (2 * TWO_PI)


def _gaps(theta: Array) -> Array:
    return np.diff(theta, append=theta[0] + TWO_PI)


def _interval_masses(law: CircleLaw, labels: Array) -> Array:
    cumulative = law.cumulative(np.append(labels, labels[0] + TWO_PI))
    return np.clip(np.diff(cumulative), 0.0, None)


def _cell_masses(law: CircleLaw, labels: Array) -> Array:
    """Mass of the cells around the labels, cut half-way to the neighbours."""
    gap = _gaps(labels)
    cuts = labels + gap / 2
    mass = np.clip(np.diff(law.cumulative(np.concatenate([[cuts[-1] - TWO_PI], cuts]))), 0.0, None)
    return mass / mass.sum()


def _steepness(theta: Array, speed: Array) -> float:
    """Largest |d speed/d theta| between neighbours, at least one tenth: the scout's step resolves it."""
    gap = _gaps(theta)
    change = np.abs(np.diff(speed, append=speed[0]))
    open_gap = gap > 1e-9
    return max(0.4, float((change[open_gap] / gap[open_gap]).max()) if open_gap.any() else 0.4)


def _rk4(flow: Flow, t: float, theta: Array, mass: Array, h: float, k1: Array) -> Array:
    k2 = angular_velocity(flow, t + h / 2, theta + h / 2 * k1, mass)
    k3 = angular_velocity(flow, t + h / 2, theta + h / 2 * k2, mass)
    k4 = angular_velocity(flow, t + h, theta + h * k3, mass)
    return theta + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def _untangled(theta: Array) -> Array:
    return np.maximum.accumulate(theta)


def _inserted(labels: Array, theta: Array, demand: Array, split: np.ndarray) -> tuple[Array, Array, Array]:
    """New labels in the middle of the marked intervals; positions by a monotone spline of the flow map."""
    gap = _gaps(labels)
    fresh = labels[split] + gap[split] / 2
    pad = 3
    wrapped_labels = np.concatenate([labels[-pad:] - TWO_PI, labels, labels[:pad] + TWO_PI])
    wrapped_theta = np.concatenate([theta[-pad:] - TWO_PI, theta, theta[:pad] + TWO_PI])
    keep = np.concatenate([[True], np.diff(wrapped_labels) > 0])
    position = PchipInterpolator(wrapped_labels[keep], wrapped_theta[keep])(fresh)
    order = np.argsort(np.concatenate([labels, fresh]), kind="stable")
    return (
        np.concatenate([labels, fresh])[order],
        np.concatenate([theta, position])[order],
        np.concatenate([demand, demand[split]])[order],
    )
