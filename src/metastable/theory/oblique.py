"""The angle to the limit for an oblique projector: M not symmetric, with a real simple leading eigenvalue (S8)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from metastable.theory.contraction import Push
from metastable.theory.spectrum import Spectrum


@dataclass(frozen=True, eq=False)
class Ratio:
    """State of the comparison for an oblique projector: rho = |Sw|/|l x|, infinite if a token may have crossed."""

    rho: np.ndarray
    total: np.ndarray

    def replaced(self, where: np.ndarray, other: Ratio) -> Ratio:
        """The other state for some tokens."""
        return Ratio(np.where(where, other.rho, self.rho), np.where(where, other.total, self.total))

    def lowered(self, total: np.ndarray) -> Ratio:
        """rho is not an angle: what is known of the angle elsewhere does not lower it."""
        return self


class Oblique:
    """M with a real simple leading eigenvalue, right and left eigenvectors e, l, l e = 1, |e| = 1: x = a e + w.

    In the eigenbasis of the other eigenvalues, |Sw| scaled so that |w| <= |Sw|, with rho = |Sw|/|a|:
        rho' <= -(g/|B^T x|) rho + (1 + rho)(A + rho C),  A = [<Sw, S delta>/|Sw|]_+, C = [-sign(a) l delta]_+  (S8)
    as |a|^{-1} = |e + w/a| <= 1 + rho. The angle to sign(a) e follows from rho and chi = |P e|, P the orthogonal
    projector onto the space of the w. The condition of the eigenbasis enters through |S delta| and |l delta|.
    """

    def __init__(self, s: Spectrum) -> None:
        values, vectors = np.linalg.eig(s.M.matrix.numpy())
        lead = int(np.argmax(values.real))
        self.gap = s.gap
        e = vectors[:, lead].real
        self.e = e / np.linalg.norm(e)
        others = np.delete(vectors, lead, axis=1)
        inverse = np.linalg.inv(np.column_stack([self.e, others]))
        self.left = inverse[0].real
        self.S = np.linalg.norm(others, 2) * inverse[1:]
        span = np.linalg.svd(self.left[None])[2][1:]  # the w: all that is orthogonal to l
        self.chi = float(np.linalg.norm(span @ self.e))
        B = s.weights.B.detach().cpu().double().numpy()
        self.B_norm, self.e_image = float(np.linalg.norm(B, 2)), float(np.linalg.norm(B.T @ self.e))

    def at(self, x: np.ndarray, limit: np.ndarray) -> Ratio:
        """rho of tokens x whose limits are given; infinite on the other side of the separatrix."""
        side = x @ self.left * (limit @ self.left)
        with np.errstate(divide="ignore", invalid="ignore"):
            rho = np.linalg.norm(x @ self.S.T, axis=1) / np.abs(x @ self.left)
            rho = np.where(side > 0, rho, np.inf)
        return Ratio(rho, self.angle(rho))

    def angle(self, rho: np.ndarray) -> np.ndarray:
        """Largest angle between e + z and e over all z with l z = 0 and |z| <= rho."""
        with np.errstate(invalid="ignore"):
            small = np.arcsin(np.minimum(rho, self.chi))
            large = np.arctan2(rho * math.sqrt(1 - self.chi**2), 1 - self.chi * rho)
        inside = (rho <= self.chi) & (len(self.e) > 2)  # the worst z needs a plane to turn in
        return np.where(np.isfinite(rho), np.where(inside, small, large), math.pi)

    def push(self, x: np.ndarray, limit: np.ndarray, defect: np.ndarray, h: float) -> Push:
        """A in `away`, C in `lift`; the whole |S delta| where Sw may turn within the time h."""
        Sw, pushed = x @ self.S.T, defect @ self.S.T
        length, most = np.linalg.norm(Sw, axis=1), np.linalg.norm(pushed, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            growth = np.where(length > h * most, (Sw.conj() * pushed).sum(1).real / length, most)
        loss = -np.sign(x @ self.left) * (defect @ self.left)
        size = np.linalg.norm(defect, axis=1)
        return Push(size, growth, loss, size)

    def uniform_push(self, size: np.ndarray) -> Push:
        """A defect of which only the size is known."""
        return Push(size, np.linalg.norm(self.S, 2) * size, np.linalg.norm(self.left) * size, size)

    def advance(self, state: Ratio, push: Push, h: float) -> Ratio:
        """rho' = A + (A + C - rate) rho + C rho^2 is p/q with p' = b p + A q, q' = -b q - C p, b = (A+C-rate)/2."""
        A, C = np.maximum(push.away, 0), np.maximum(push.lift, 0)
        with np.errstate(over="ignore", invalid="ignore"):
            # rho stays below `most` inside the interval if even there the push cannot carry it further.
            most = state.rho + 2 * h * (1 + state.rho) * (A + state.rho * C)
            holds = state.rho + h * (1 + most) * (A + most * C) <= most
        near = np.minimum(self.B_norm, self.e_image + 2 * self.B_norm * np.sin(self.angle(most) / 2))
        image = np.where(holds & np.isfinite(most), near, self.B_norm)
        b = (A + C - self.gap / image) / 2
        square = b * b - A * C
        mu = np.sqrt(np.abs(square))
        z = mu * h
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.where(z > 1e-8, np.where(square > 0, np.tanh(z), np.tan(np.minimum(z, 1.5))) / mu, h)
            p = state.rho + slope * (b * state.rho + A)
            q = 1 - slope * (b + C * state.rho)
            rho = np.where((q > 0) & ((square > 0) | (z < 1.5)) & np.isfinite(state.rho), p / q, np.inf)
        return Ratio(rho, self.angle(rho))
