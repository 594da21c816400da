"""`forecast`: what the theory says about one head, one temperature and some tokens, and how far to trust it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from metastable import arguments
from metastable.errors import InvalidInput, NotDefined
from metastable.flows import SelfAttention
from metastable.flows.flow import Flow
from metastable.flows.orbit import orbit
from metastable.measure import Measure
from metastable.solve.path import Path
from metastable.solve.solve import solve
from metastable.theory.bound import Bound, bound_along, check_run
from metastable.theory.finite_context import FiniteContext, finite_context
from metastable.theory.head_of_flow import head_of
from metastable.theory.laplace import attention_defect, effective_tokens
from metastable.theory.limit import LimitMap, check_isolated
from metastable.theory.phases import Terminal, Times, phase_times, terminal
from metastable.theory.picard import Prediction, distance_from
from metastable.theory.priori import PrioriBound, priori_bound
from metastable.theory.rates import Rates, rates
from metastable.theory.spectrum import Spectrum, spectrum
from metastable.theory.stability import growth_constant, optimal_time
from metastable.theory.tokens import tokens
from metastable.theory.validity import Range, empty_range, safe_time, valid_range, warnings_at_the_start
from metastable.theory.wording import finite, rows
from metastable.theory.zero_temperature import distance_to_limit
from metastable.weights import AttentionWeights

LATEST = 1e4
"""Latest end of a run that a bound is read from, in units of 1/||V||: the bound has been trivial for long."""
MOST_FRAMES = 100_000
"""Most frames of a run that a bound is read from."""
SETTLED = 750.0
"""e-folds of the slowest approach to E after which nothing of it is left in double precision: e^-750 is 0."""
PARTS: dict[str, type] = {
    "weights": AttentionWeights,
    "rho0": Measure,
    "spectrum": Spectrum,
    "rates": Rates,
    "phases": Times,
    "terminal": Terminal,
}
"""What a forecast is made of."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """What to expect of x' = P_x V m_beta[rho](x) from rho_0; build it with `forecast`.

    rates.c, rates.local: exponents of the approach to Pi#rho_0; C = L_0: exponent of the drift away from zero
    temperature. `times` are the phases, `terminal` the end. n_eff, defect, kappa say how well n tokens emulate the
    mean field at this beta; `warnings` are sentences, and `in_range(t)` says where `curve(t)` can be trusted.
    """

    weights: AttentionWeights
    beta: float
    rho0: Measure
    spectrum: Spectrum
    rates: Rates
    C: float
    kappa: float
    n_eff: float
    defect: float
    phases: Times
    terminal: Terminal
    warnings: tuple[str, ...]

    def __post_init__(self) -> None:
        for name, kind in PARTS.items():
            arguments.instance(getattr(self, name), name, kind, f"a {kind.__name__}; build it with forecast(...)")
        for name in ("beta", "C", "kappa", "n_eff", "defect"):
            arguments.number(getattr(self, name), name, finite=False)
        arguments.names(self.warnings, "warnings")

    def __repr__(self) -> str:
        return (
            f"Forecast(beta={self.beta:g}, n={self.rho0.n}, d={self.rho0.d}, kind={self.spectrum.kind!r}, "
            f"c={self.c:.4g}, exit={self.phases.exit:.4g})"
        )

    @cached_property
    def times(self) -> Times:
        """Times of the phases: `phases`, the safe time of which is checked against the predicted curve.

        It is 0 where no curve can be read, and ends where a prediction comes near the safe curve.
        """
        if empty_range(self.spectrum, self.rho0.n, self.defect) is not None or not self.phases.safe > 0:
            return replace(self.phases, safe=0.0)
        return replace(self.phases, safe=safe_time(self.phases, self._prediction, self._safe_margin))

    @property
    def c(self) -> float:
        """Exponent of W2 towards the limit (Z7)."""
        return self.rates.c

    @property
    def c_local(self) -> float:
        """Exponent close to the limit (Z4)."""
        return self.rates.local

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The theorem's assumptions in words, with a mark whether they hold."""
        return tuple(f"{'holds' if a.holds else 'fails'}: {a.sentence}" for a in self.spectrum.assumptions)

    @property
    def optimum(self) -> tuple[float, float]:
        """(T*, error): where the theorem's bound is smallest, and its size there up to a constant (S5).

        Where nothing decays (M a multiple of the identity) that is at time 0.
        """
        return optimal_time(self.beta, self.C, self.c)

    def zero_temperature_curve(self, t: Any) -> Any:
        """D0(t): the exact zero-temperature distance to the limit."""
        times = _times(t)
        # Beyond SETTLED e-folds the distance is what tokens in the exceptional set leave of it.
        settled = np.minimum(np.atleast_1d(times), SETTLED / self.rates.guaranteed)
        if not settled.size:
            return torch.zeros(0, dtype=torch.float64)
        if self.spectrum.M.symmetric or self.spectrum.kind in ("rotation", "jordan"):
            value = np.asarray(
                distance_to_limit(self.weights, self.rho0, settled, tolerance=self.spectrum.M.tolerance)
            )
        else:
            distance = distance_from(LimitMap(self.spectrum), self.rho0.points, self.rho0.mass)
            orbits = orbit(self.weights.M, self.weights.B, self.rho0.points, settled)
            value = np.array([distance(x) for x in orbits])
        return float(value[0]) if times.ndim == 0 else torch.from_numpy(value)

    def curve(self, t: Any) -> Any:
        """Predicted W2(rho_t^beta, Pi#rho_0): tokens driven by the zero-temperature crowd, see `Prediction`.

        Within 15% of a simulation up to `valid_until`. Beyond it the curve is still computed, and claims nothing;
        from 38/||V|| on it keeps its last value.
        """
        times = _times(t)
        value = self._prediction(np.atleast_1d(times))[0]
        return float(value[0]) if times.ndim == 0 else torch.from_numpy(value)

    def safe_curve(self, t: Any) -> Any:
        """D0 + .5 sqrt(log(beta+1)/beta) + .5 n^{-1/4}: above the truth for t <= times.safe, yet no proof (N7).

        times.safe is 0 where the start is not close to zero temperature (`defect` above its limit).
        """
        return self.zero_temperature_curve(t) + self._safe_margin

    @property
    def _safe_margin(self) -> float:
        return 0.5 * math.sqrt(math.log1p(self.beta) / self.beta) + 0.5 * self.rho0.n**-0.25

    @property
    def valid_until(self) -> float:
        """Last time at which `curve` claims 15%; 0 where the forecast is out of range from the start.

        Up to here the iterations of the prediction agree, no single token weighs 15%, and neither the exit nor the
        gathering of tokens on E has come. `range_ends` says which of these ends the range.
        """
        return self._range.until

    @property
    def range_ends(self) -> str:
        """Why the range of `curve` ends at `valid_until`, in words."""
        return self._range.why

    @cached_property
    def _range(self) -> Range:
        ruled_out = empty_range(self.spectrum, self.rho0.n, self.defect)
        return ruled_out or valid_range(self.phases, self._prediction)

    def in_range(self, t: Any) -> Any:
        """Whether `curve(t)` is claimed to be within 15% of the simulation; nowhere when `valid_until` is 0."""
        times = _times(t)
        inside = (times <= self.valid_until) & (self.valid_until > 0)
        return bool(inside) if times.ndim == 0 else torch.from_numpy(inside)

    def bound(self, path: Any = None, t: float | None = None, frames: int = 65) -> Bound:
        """Rigorous a-posteriori bound along a run of softmax: min(2, D0 + S3, contraction of tokens S6-S8).

        `path` is a run of this flow from rho_0 that starts at time 0; without one the flow is solved to time t
        (default: the crossing time). The only inputs taken from the run are the velocity defects at its saved
        times: the bound is as rigorous as those times resolve the defect. A run of other weights, another beta or
        other tokens is refused.
        """
        if path is None:
            frames = arguments.integer(frames, "frames", least=2, most=MOST_FRAMES)
            late = LATEST / max(self.weights.V_norm, 1e-300)
            end = (
                min(self.phases.crossing, 20 / self.c)
                if t is None
                else arguments.number(t, "t", above=0, most=late)
            )
            grid = np.linspace(0.0, end, frames)
            path = solve(SelfAttention(self.weights, beta=self.beta), self.rho0, t=end, times=grid)
        else:
            arguments.instance(path, "path", Path, "a Path such as solve(...) gives")
            check_run(path, self.weights, self.beta, self.rho0)
        zero = torch.as_tensor(self.zero_temperature_curve(np.asarray(path.times)))
        return bound_along(self.spectrum, self.beta, path, self.C, zero)

    @cached_property
    def _priori(self) -> PrioriBound:
        return priori_bound(self.weights, self.beta, self.rho0, self.C)

    def priori_bound(self, t: Any) -> Any:
        """Theorem-type bound S4 of W2(rho_t^beta, Pi#rho_0), at most 2: no run, pessimistic."""
        times = _times(t)
        if not times.size:
            return torch.zeros(0, dtype=torch.float64)
        when = float(times) if times.ndim == 0 else times
        return self._priori.to_limit(when, self.zero_temperature_curve(when))

    @cached_property
    def _prediction(self) -> Prediction:
        if self.spectrum.kind in ("rotation", "jordan"):
            raise NotDefined(
                f"there is no distance to a limit to predict: M = V B^T is of kind '{self.spectrum.kind}'; "
                "compare with comoving_target(w, points, t) instead"
            )
        check_isolated(self.spectrum)
        return Prediction(self.weights, self.beta, self.rho0, LimitMap(self.spectrum))

    def finite_context(self, n: int | None = None, t: float | None = None) -> FiniteContext:
        """E W2(rho_t^n, Pi#rho_0)^2 of n iid tokens of the law that rho_0 stands for: width, sampling, attention.

        n: that of rho_0 by default. t: by default when clusters have become narrow, or 0 where nothing concentrates
        (M a multiple of the identity). Metastable's estimate for symmetric M and dim E = 1 or 2 (X7, X8);
        `in_range` and `why` of what is returned say where it is claimed.
        """
        crossing = self.phases.crossing
        when = (crossing if math.isfinite(crossing) else 0.0) if t is None else arguments.number(t, "t", least=0)
        count = self.rho0.n if n is None else n
        found = finite_context(self.spectrum, self.beta, self.rho0, count, when)
        if found.in_range and when > self.phases.exit:
            return replace(found, why=f"the concentrated phase ends at {self.phases.exit:.3g}")
        return found

    @cached_property
    def _sample(self) -> FiniteContext | None:
        """`finite_context` of as many iid tokens as rho_0 has; None where it is not known."""
        try:
            return self.finite_context() if self.rho0.n > 1 else None
        except NotDefined:
            return None

    def to_dict(self, t: Any = None) -> dict[str, Any]:
        """Plain numbers and strings for JSON (None for infinite or undefined); with times t also the curves."""
        record: dict[str, Any] = {
            "beta": self.beta,
            "n": self.rho0.n,
            "d": self.rho0.d,
            "spectrum": self.spectrum.to_dict(),
            "rates": {"c": self.c, "c_local": self.c_local, "C": self.C, "terminal": self.rates.terminal},
            "times": asdict(self.times),
            "optimum": dict(zip(("time", "error"), self.optimum, strict=True)),
            "terminal": {
                "space": self.terminal.space.tolist(),
                "kind": self.terminal.kind,
                "rate": self.terminal.rate,
                "frequency": self.terminal.frequency,
                "sentence": self.terminal.sentence,
            },
            "kappa": self.kappa,
            "n_eff": self.n_eff,
            "defect": self.defect,
            "finite_context": None if self._sample is None else self._sample.to_dict(),
            "warnings": list(self.warnings),
        }
        if self.spectrum.kind not in ("rotation", "jordan"):
            record["valid_until"] = self.valid_until
            record["range_ends"] = self.range_ends
            if t is not None:
                times = np.atleast_1d(_times(t))
                record["curves"] = {
                    "t": times.tolist(),
                    "predicted": self.curve(times).tolist(),
                    "zero_temperature": self.zero_temperature_curve(times).tolist(),
                    "safe": self.safe_curve(times).tolist(),
                    "priori_bound": self.priori_bound(times).tolist(),
                    "in_range": self.in_range(times).tolist(),
                }
        plain: dict[str, Any] = finite(record)
        return plain

    def table(self) -> list[tuple[str, str, str]]:
        """Rows (quantity, value, meaning) for a terminal."""
        start = (self.defect, self.kappa, self.n_eff)
        limited = self.spectrum.kind not in ("rotation", "jordan")
        claimed = (self.valid_until, self.range_ends) if limited else None
        return rows(self.spectrum, self.rates, self.C, start, self.times, claimed, self._sample, self.terminal)


def forecast(
    w: AttentionWeights | Flow, beta: Any = None, rho0: Any = None, *, deterministic: bool = False, seed: int = 0
) -> Forecast:
    """Rates, times of each phase, predicted and bounding W2 curves, terminal space, warnings; metastable's own.

    w, beta, rho0: the head, its inverse temperature, and a Measure or points; or a flow that consists of one head,
    which has its beta, and the tokens: forecast(flow, rho0). `deterministic` says that the tokens are nodes rather
    than iid samples (a later safe time). Nothing is simulated; the curve is computed when it is asked for.

    >>> from metastable import sphere
    >>> w = AttentionWeights(V=[[2.0, 0.0], [0.0, 1.0]], B=[[1.0, 0.0], [0.0, 1.0]])
    >>> f = forecast(w, 64.0, sphere.equispaced(500))
    >>> f.c, f.c_local, f.times.exit
    (0.5, 1.0, inf)
    """
    w, own = head_of(w)
    if own is not None:
        if rho0 is not None and beta is not None:
            raise InvalidInput("a flow has its beta: give forecast(flow, tokens)")
        beta, rho0 = own, beta if rho0 is None else rho0
    beta = arguments.number(beta, "beta", above=0)
    rho = tokens(rho0, w.d)
    deterministic = arguments.flag(deterministic, "deterministic")
    s = spectrum(w)
    check_isolated(s)
    kappa = float(beta * torch.linalg.vector_norm(w.B_transpose(rho.points), dim=1).median())
    n_eff = float(effective_tokens(rho.n, kappa, rho.d))
    defect = attention_defect(w, rho, beta)
    return Forecast(
        weights=w,
        beta=beta,
        rho0=rho,
        spectrum=s,
        rates=rates(s),
        C=growth_constant(w),
        kappa=kappa,
        n_eff=n_eff,
        defect=defect,
        phases=phase_times(s, beta, rho, deterministic, seed),
        terminal=terminal(s, rho),
        warnings=warnings_at_the_start(s, rho, kappa, n_eff, defect),
    )


def _times(t: Any) -> np.ndarray:
    """One time or a row of them, finite and >= 0."""
    single = arguments.shape(t) == () or not isinstance(t, Iterable)
    read = arguments.number(t, "t", least=0) if single else arguments.numbers(t, "t", least=0)
    return np.asarray(read, dtype=np.float64)
