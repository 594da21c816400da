"""How far a token can be from its limit: comparison equations for its angle, driven by the defect v_beta - v_0.

M symmetric, E its top space, x = cos(theta) p + sin(theta) q with p in E, q in E^perp, delta = v_beta - v_0:
    theta' <= -(g/|B^T x|) sin(theta) cos(theta) - <p, delta>/sin(theta),  |p'| = |P_p P_E delta|/cos(theta)  (S6)
and for the angle psi to the point Pi(x_0) of E (dim E = 1: -(g/r) sin cos while psi < pi/2, else 0)
    psi' <= (G/r) sin(psi)|cos(psi)| [psi > pi/2] - <Pi(x_0), delta>/sin(psi),  G = l_1 - l_d, r = |B^T x|    (S7)
so that only tokens in a thin strip around E^perp can change sides. Each right-hand side is replaced by one that is
constant on a short interval and no smaller, whose solution is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from metastable.theory.spectrum import Spectrum


@dataclass(frozen=True, eq=False)
class Push:
    """The defect delta of every token as the comparison equations see it, no smaller than it is on an interval.

    size: |delta|.  away: its part away from Pi(x_0).  lift: away from E.  turn: the part that turns p inside E.
    For an oblique projector `away` is the growth of |Sw| and `lift` the loss of |l x|, see `Oblique`.
    """

    size: np.ndarray
    away: np.ndarray
    lift: np.ndarray
    turn: np.ndarray


def turned(angle: np.ndarray, rate: np.ndarray, push: np.ndarray, h: float) -> np.ndarray:
    """phi(h) of phi' = -rate sin(phi) cos(phi) + push with constant coefficients, phi(0) = angle in [0, pi/2].

    phi is the angle of (p, q) with p' = -rate/2 p + push q, q' = rate/2 q - push p, a linear equation. Exact as
    long as phi does not turn through more than a quarter.
    """
    square = rate * rate / 4 - push * push
    mu = np.sqrt(np.abs(square))
    z = mu * h
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(z > 1e-8, np.where(square > 0, np.tanh(z), np.tan(np.minimum(z, 1.5))) / mu, h)
    p, q = np.sin(angle), np.cos(angle)
    return np.arctan2(p + slope * (push * q - rate / 2 * p), q + slope * (rate / 2 * q - push * p))


def _resting(rate: np.ndarray, push: np.ndarray) -> np.ndarray:
    """The rest point of phi' = -rate sin cos + |push| in [pi/4, pi/2] that no token passes from below, else -1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(rate > 0, 2 * np.abs(push) / rate, np.inf)
    return np.where(ratio < 1, math.pi / 2 - np.arcsin(np.minimum(ratio, 1.0)) / 2, -1.0)


def below_half(angle: np.ndarray, rate: np.ndarray, push: np.ndarray, h: float) -> np.ndarray:
    """Upper bound of phi(h) for angle <= pi/2; at least pi/2 where phi may have passed it."""
    half = math.pi / 2
    straight = angle + push * h  # what the push alone does
    slow = 2 * np.abs(push) < rate
    stays = (straight < half) | (slow & (angle <= _resting(rate, push)))
    exact = slow | ((push > 0) & (straight < half))
    end = np.where(exact, turned(angle, rate, push, h), straight)
    return np.where(stays, np.clip(end, 0.0, half), np.maximum(straight, half))


def above_half(angle: np.ndarray, rate: np.ndarray, push: np.ndarray, h: float) -> np.ndarray:
    """Upper bound of phi(h) for angle >= pi/2, where -rate sin cos drives it away from pi/2; never below pi/2."""
    half = math.pi / 2
    rest = math.pi - angle  # rest' = -rate sin(rest) cos(rest) - push, to be bounded from below
    slow = 2 * np.abs(push) < rate
    returns = slow & (push < 0) & (rest > _resting(rate, push))
    exact = np.where(returns, rest, turned(rest, rate, -push, h))
    end = np.where(slow, exact, rest - h * (push + rate / 2))
    return math.pi - np.clip(end, 0.0, half)


@dataclass(frozen=True, eq=False)
class Angles:
    """State of the comparison for symmetric M: psi to Pi(x_0), theta to E, omega between p and Pi(x_0)."""

    psi: np.ndarray
    theta: np.ndarray
    omega: np.ndarray

    @property
    def total(self) -> np.ndarray:
        """Angle between the token and Pi(x_0): psi, or cos = cos(theta) cos(omega) where that says more."""
        inner = np.where(np.cos(self.omega) >= 0, np.cos(self.theta), 1.0) * np.cos(self.omega)
        through_E = np.where(self.theta < math.pi / 2, np.arccos(np.clip(inner, -1, 1)), math.pi)
        return np.minimum(self.psi, through_E)

    def replaced(self, where: np.ndarray, other: Angles) -> Angles:
        """The other state for some tokens."""
        pairs = ((other.psi, self.psi), (other.theta, self.theta), (other.omega, self.omega))
        return Angles(*(np.where(where, a, b) for a, b in pairs))

    def lowered(self, total: np.ndarray) -> Angles:
        """The same, knowing that the angle to Pi(x_0) is at most `total`: below pi/2 so are theta and omega."""
        inside = np.where(total < math.pi / 2, total, math.pi)
        return Angles(np.minimum(self.psi, total), np.minimum(self.theta, inside), np.minimum(self.omega, inside))


class Symmetric:
    """The comparison equations S6, S7 for a symmetric M with top space E, dim E < d."""

    def __init__(self, s: Spectrum) -> None:
        self.basis = s.M.space.numpy()
        self.line = s.dimension == 1
        values = s.M.eigenvalues.real
        self.gap, self.spread = s.gap, float(values.max() - values.min())
        self.least_image = float(s.B_singular_values[-1])
        B = s.weights.B.detach().cpu().double().numpy()
        gram = B @ B.T
        P = self.basis @ self.basis.T
        R = np.eye(len(P)) - P
        # |B^T x|^2 <= onto cos^2 + off sin^2 + cross sin(2 theta), in turn a sinusoid of 2 theta.
        onto, off = (float(np.linalg.eigvalsh(A @ gram @ A)[-1]) for A in (P, R))
        cross = float(np.linalg.norm(P @ gram @ R, 2))
        self.middle, self.swing = (onto + off) / 2, math.hypot((onto - off) / 2, cross)
        self.peak = math.atan2(cross, (onto - off) / 2)

    def largest_image(self, theta: np.ndarray) -> np.ndarray:
        """Upper bound of |B^T x| over all x at an angle <= theta <= pi/2 to E."""
        return np.sqrt(self.middle + self.swing * np.cos(np.minimum(2 * theta, self.peak) - self.peak))

    def at(self, x: np.ndarray, limit: np.ndarray) -> Angles:
        """The angles of tokens x whose limits are given; psi = theta, omega = pi where there is no limit."""
        theta = _angle_to(self.basis, x)
        psi = angle_between(x, limit)
        inside = (x @ self.basis) @ self.basis.T
        with np.errstate(invalid="ignore", divide="ignore"):
            omega = angle_between(inside / np.linalg.norm(inside, axis=1)[:, None], limit)
        return Angles(*(np.where(np.isnan(a), b, a) for a, b in ((psi, theta), (theta, theta), (omega, math.pi))))

    def push(self, x: np.ndarray, limit: np.ndarray, defect: np.ndarray, h: float) -> Push:
        """The parts of the defect at the tokens x; `limit` holds Pi(x_0), NaN for tokens without one.

        Near a pole the direction of the angle turns within the time h: there the whole size counts.
        """
        size = np.linalg.norm(defect, axis=1)
        inside, pushed = x @ self.basis, defect @ self.basis
        c = np.linalg.norm(inside, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            p = inside / c[:, None]
            toward = (p * pushed).sum(1)
            turn = np.linalg.norm(pushed - toward[:, None] * p, axis=1)
            s = np.linalg.norm(x - inside @ self.basis.T, axis=1)
            lift = np.where(s > h * size, -toward / s, size)
            sine = np.linalg.norm(x - (limit * x).sum(1)[:, None] * limit, axis=1)
            away = np.where(sine > h * size, -(limit * defect).sum(1) / sine, size)
        return Push(size, *(np.clip(np.where(np.isfinite(a), a, size), -size, size) for a in (away, lift, turn)))

    def uniform_push(self, size: np.ndarray) -> Push:
        """A defect of which only the size is known."""
        return Push(size, size, size, size)

    def advance(self, state: Angles, push: Push, h: float) -> Angles:
        """Upper bounds of the angles after time h under a push that is constant."""
        psi = self._advanced(state.psi, push.away, h, inner=self.gap if self.line else 0.0)
        if self.line:  # p = Pi(x_0) and theta = psi until a token crosses
            return Angles(psi, np.full_like(psi, math.pi / 2), np.full_like(psi, math.pi))
        theta = self._advanced(state.theta, push.lift, h, inner=self.gap)
        certified = theta < math.pi / 2
        # Inside the interval theta may be larger than at its ends by what the push alone can do.
        highest = np.minimum(np.maximum(state.theta, theta) + h * np.maximum(push.lift, 0), math.pi / 2)
        with np.errstate(divide="ignore", over="ignore"):
            omega = state.omega + h * push.turn / np.cos(highest)
        return Angles(
            psi, np.where(certified, theta, math.pi / 2), np.minimum(np.where(certified, omega, math.pi), math.pi)
        )

    def _advanced(self, angle: np.ndarray, push: np.ndarray, h: float, inner: float) -> np.ndarray:
        """phi' <= -(inner/r) sin cos + push below pi/2 and <= (spread/r) sin|cos| + push above."""
        half = math.pi / 2
        top = np.minimum(angle + h * np.maximum(push, 0), half)
        low = below_half(np.minimum(angle, half), inner / self.largest_image(top), push, h)
        # A token that may cross within the interval counts as if it had stood on the separatrix at its start.
        outer = np.full_like(angle, self.spread / self.least_image)
        high = above_half(np.maximum(angle, half), outer, push, h)
        return np.where((angle < half) & (low < half), low, high)


def angle_between(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Angle between unit rows, with all digits where it is small."""
    cosine = (x * y).sum(-1)
    return np.arctan2(np.linalg.norm(x - cosine[..., None] * y, axis=-1), cosine)


def _angle_to(basis: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Angle between every row of x and the space spanned by the orthonormal columns of basis."""
    inside = x @ basis
    return np.arctan2(np.linalg.norm(x - inside @ basis.T, axis=1), np.linalg.norm(inside, axis=1))
