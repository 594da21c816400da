"""Tokens at beta = 0 that are symmetric about an axis e: one family of laws, which one number moves through.

    x' = P_x m,  m = E[x] = R e:   u' = R (1 - u^2)  for u = <x, e>,  so  artanh u = artanh u_0 + eta,  eta' = R.
From uniform tokens the law of x is then the image of the uniform one under a Moebius map of the ball, whose shift
is eta, and R = f_d(eta) closes the equation (Q1). Source of the setting: [arXiv:2504.14697]; the formulas are ours.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy import special

from metastable.arguments import integer, number, shown
from metastable.errors import InvalidInput
from metastable.measure import as_tensor

LARGEST_DIMENSION = 10**6
"""Largest dimension that is offered: the marginal is then as narrow as 1e-3."""
LARGEST_SHIFT = 350.0
"""Largest shift and time: 1 - R = e^{-2 eta} is about to leave the range of numbers."""
STEP, WIDTH_STEP = 0.2, 0.5
"""Step of the trapezoidal rule in artanh u_0: the integrands are analytic in |Im| < pi/2, which leaves
e^{-pi^2/STEP} = 4e-22; and in standard deviations (d-1)^{-1/2} where the marginal is that narrow, which leaves
e^{-2 pi^2/WIDTH_STEP^2} = 5e-35."""
NEGLIGIBLE = 40.0
"""Exponents below the largest by this much are left out: e^{-40} = 4e-18 is below rounding."""
PANEL, GAUSS = 0.5, 12
"""Width of a panel in log sinh(eta/2), and nodes of its Gauss rule: what they leave is below 1e-14."""
NEWTON_STEPS = 50
"""Most Newton steps for a shift; from the middle of a panel, over which the speed hardly changes, five do."""


def order(shift: Any, d: int) -> Any:
    """R = f_d(eta) = E[tanh(artanh u_0 + eta)], u_0 the overlap of a uniform token with the axis (Q1).

    f_2 = tanh(eta/2), f_3 = coth(eta) - eta/sinh^2(eta). A number for a number, a float64 tensor for an array.

    >>> round(order(1.0, 3), 12) == round(1 / math.tanh(1) - 1 / math.sinh(1) ** 2, 12)
    True
    """
    eta, d = _checked(shift, d)
    return _like(_order(eta, d), shift)


def disorder(shift: Any, d: int) -> Any:
    """1 - f_d(eta) = 2F1(1, (d-1)/2; d; 1 - e^{2 eta}), with all its digits: half of W2^2 to the atom at e (Q1).

    >>> round(disorder(20.0, 2) * (1 + math.exp(20)), 12)
    2.0
    """
    eta, d = _checked(shift, d)
    return _like(_disorder(eta, d), shift)


def shift_of_order(R: float, d: int) -> float:
    """The shift eta with f_d(eta) = R.

    >>> round(shift_of_order(math.tanh(0.25), 2), 12)
    0.5
    """
    from scipy import optimize

    R, d = number(R, "R", above=-1.0, below=1.0), _dimension(d)
    if R == 0:
        return 0.0
    size = abs(R)
    low, high = math.log(size), math.log(LARGEST_SHIFT)  # f_d(eta) <= eta
    found = optimize.brentq(lambda v: float(_order(np.array(math.exp(v)), d)) - size, low, high, xtol=1e-15)
    return math.copysign(math.exp(found), R)


def travel_time(start: float, end: float, d: int) -> float:
    """t = int d eta/f_d(eta) from the shift `start` to the shift `end`, 0 < start <= end (Q1).

    >>> round(travel_time(1.0, 2.0, 2) - 2 * math.log(math.sinh(1.0) / math.sinh(0.5)), 12)
    0.0
    """
    d = _dimension(d)
    start = number(start, "the start", above=0.0, most=LARGEST_SHIFT)
    end = number(end, "the end", least=start, most=LARGEST_SHIFT)
    low, high = _depth(start), _depth(end)
    edges = np.linspace(low, high, math.ceil((high - low) / PANEL) + 1)
    return float(_panel_times(edges[:-1], np.diff(edges), d).sum())


def shift(t: Any, start: float, d: int) -> Any:
    """eta(t) from eta(0) = start >= 0, the inverse of `travel_time`; uniform tokens, start = 0, do not move (Q1).

    >>> round(order(shift(4.0, 0.5, 2), 2), 6)
    0.881469
    """
    d, start = _dimension(d), number(start, "the start", least=0.0, most=LARGEST_SHIFT)
    times = as_tensor(t, "t").cpu().numpy()
    if not bool(np.isfinite(times).all()) or bool(((times < 0) | (times > LARGEST_SHIFT)).any()):
        raise InvalidInput(f"t must be in [0, {LARGEST_SHIFT:g}], got {shown(t)}")
    if start == 0 or times.size == 0:
        return _like(np.zeros_like(times), t)
    # d t/d v lies between d/(d-1) and 2 for v = log sinh(eta/2), so that v grows by at most t.
    low = _depth(start)
    edges = low + PANEL * np.arange(math.ceil(float(times.max()) / PANEL) + 2)
    reached = np.concatenate([[0.0], np.cumsum(_panel_times(edges[:-1], np.diff(edges), d))])
    flat = times.ravel()
    panel = np.clip(np.searchsorted(reached, flat, side="right") - 1, 0, len(edges) - 2)
    left, due = edges[panel], flat - reached[panel]
    width = np.full_like(flat, PANEL / 2)
    for _ in range(NEWTON_STEPS):
        change = (due - _panel_times(left, width, d)) / _slowness(left + width, d)
        width = np.clip(width + change, 0.0, PANEL)
        if float(np.abs(change).max()) < 1e-14:
            break
    return _like(_shift_at(left + width).reshape(times.shape), t)


def moved_overlap(u: Any, shift: float) -> Any:
    """tanh(artanh u + eta) = (u + c)/(1 + c u), c = tanh(eta): where the shift takes a token of overlap u (Q1).

    >>> moved_overlap(0.0, 0.5) == math.tanh(0.5)
    True
    """
    eta = number(shift, "shift", least=-LARGEST_SHIFT, most=LARGEST_SHIFT)
    values = as_tensor(u, "u").cpu().numpy()
    if not bool(np.isfinite(values).all()) or bool((np.abs(values) > 1).any()):
        raise InvalidInput(f"overlaps u must be in [-1, 1], got {shown(u)}")
    c = math.tanh(eta)
    # Both ends are kept: numerator and denominator vanish together for u = -1 and c = 1.
    moved = np.where(np.abs(values) == 1, values, (values + c) / np.where(np.abs(values) == 1, 1.0, 1 + c * values))
    return _like(np.clip(moved, -1.0, 1.0), u)


def relative_density(u: Any, shift: float, d: int) -> Any:
    """(cosh eta - u sinh eta)^{1-d}: density of the family at overlap u, relative to the uniform law (Q1).

    >>> round(relative_density(1.0, 0.5, 3), 12) == round(math.e, 12)
    True
    """
    d, eta = _dimension(d), number(shift, "shift", least=-LARGEST_SHIFT, most=LARGEST_SHIFT)
    values = as_tensor(u, "u").cpu().numpy()
    if not bool(np.isfinite(values).all()) or bool((np.abs(values) > 1).any()):
        raise InvalidInput(f"overlaps u must be in [-1, 1], got {shown(u)}")
    # cosh - u sinh = e^{-eta} (1 + (e^{2 eta} - 1)(1 - u)/2), each factor with its digits.
    with np.errstate(over="ignore"):
        log = (d - 1) * (eta - np.log1p(math.expm1(2 * eta) * (1 - values) / 2))
        density = np.exp(log)
    if not bool(np.isfinite(density).all()):
        raise InvalidInput(f"the density overflows at shift {eta:g} in dimension {d}")
    return _like(density, u)


def _order(eta: np.ndarray, d: int) -> np.ndarray:
    """E[sinh 2 eta/(cosh 2y + cosh 2 eta)], y = artanh u_0: the mean of tanh(y + eta) and tanh(-y + eta)."""
    if d == 2:
        return np.tanh(eta / 2)
    y, weight = _marginal(float(np.abs(eta).max(initial=0.0)), d)
    far = _log_cosh(2 * y) - _log_cosh(2 * eta[..., None])
    return np.tanh(2 * eta) * (special.expit(-far) @ weight)


def _disorder(eta: np.ndarray, d: int) -> np.ndarray:
    """E[1 - tanh(y + eta)] = E[2/(1 + e^{2 (y + eta)})]."""
    if d == 2:
        return 2 * special.expit(-eta)
    y, weight = _marginal(float(np.abs(eta).max(initial=0.0)), d)
    return 2 * special.expit(-2 * (y + eta[..., None])) @ weight


def _marginal(reach: float, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Trapezoidal rule for y = artanh u_0, of density cosh(y)^{1-d}, as far as shifts up to `reach` see it."""
    thin = math.acosh(math.exp(min(NEGLIGIBLE / (d - 1), 600.0)))
    # Tokens at the antipode count e^{2 reach} times as much as their mass says.
    seen = thin + (reach if d <= 3 else min(reach, NEGLIGIBLE / (d - 3)))
    step = min(STEP, WIDTH_STEP / math.sqrt(d - 1))
    half = step * np.arange(1, math.ceil(seen / step) + 1)
    y = np.concatenate([-half[::-1], [0.0], half])
    weight = np.exp(-(d - 1) * _log_cosh(y))
    return y, weight / weight.sum()


def _log_cosh(y: np.ndarray) -> np.ndarray:
    size = np.abs(y)
    return np.asarray(size + np.log1p(np.exp(-2 * size)) - math.log(2))


def _depth(eta: float) -> float:
    """v = log sinh(eta/2), in which the circle moves at the constant speed 1/2."""
    return eta / 2 + math.log(-math.expm1(-eta)) - math.log(2)


def _shift_at(depth: np.ndarray) -> np.ndarray:
    """2 arsinh(e^v)."""
    small = np.minimum(depth, 0.0)
    large = np.maximum(depth, 0.0)
    inside = 2 * np.arcsinh(np.exp(small))
    outside = 2 * (large + np.log1p(np.sqrt(1 + np.exp(-2 * large))))
    return np.where(depth < 0, inside, outside)


def _slowness(depth: np.ndarray, d: int) -> np.ndarray:
    """d t/d v = 2 tanh(eta/2)/f_d(eta)."""
    eta = _shift_at(depth)
    return np.asarray(2 * np.tanh(eta / 2) / _order(eta, d))


def _panel_times(left: np.ndarray, width: np.ndarray, d: int) -> np.ndarray:
    """Time spent on each panel [left, left + width] of v."""
    node, weight = np.polynomial.legendre.leggauss(GAUSS)
    inside = left[:, None] + width[:, None] * (node + 1) / 2
    return np.asarray((_slowness(inside, d) @ weight) * width / 2)


def _dimension(d: int) -> int:
    return integer(d, "d", least=2, most=LARGEST_DIMENSION)


def _checked(given: Any, d: int) -> tuple[np.ndarray, int]:
    d = _dimension(d)
    eta = as_tensor(given, "shift").cpu().numpy()
    if not bool((np.abs(eta) <= LARGEST_SHIFT).all()):
        raise InvalidInput(f"shift must be in [-{LARGEST_SHIFT:g}, {LARGEST_SHIFT:g}], got {shown(given)}")
    return eta, d


def _like(values: np.ndarray, given: Any) -> Any:
    return float(values) if np.ndim(given) == 0 else torch.from_numpy(np.ascontiguousarray(values))
