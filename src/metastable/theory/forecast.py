"""`forecast`: what the theory says about one head, one temperature and some tokens, and how far to trust it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from metastable.attention.attend import check_beta
from metastable.errors import InvalidInput, NotDefined
from metastable.flows import SelfAttention
from metastable.measure import Measure
from metastable.solve.solve import solve
from metastable.theory.bound import Bound, bound_along, check_run
from metastable.theory.laplace import attention_defect, effective_tokens
from metastable.theory.limit import LimitMap, check_isolated
from metastable.theory.phases import Terminal, Times, phase_times, terminal
from metastable.theory.picard import Prediction
from metastable.theory.priori import PrioriBound, priori_bound
from metastable.theory.rates import Rates, rates
from metastable.theory.spectrum import Spectrum, spectrum
from metastable.theory.stability import growth_constant, optimal_time
from metastable.theory.tokens import tokens
from metastable.theory.validity import LARGEST_DEFECT, Range, empty_range, valid_range, warnings_at_the_start
from metastable.theory.zero_temperature import distance_to_limit
from metastable.weights import AttentionWeights


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
    times: Times
    terminal: Terminal
    warnings: tuple[str, ...]

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
        return distance_to_limit(self.weights, self.rho0, t, tolerance=self.spectrum.M.tolerance)

    def curve(self, t: Any) -> Any:
        """Predicted W2(rho_t^beta, Pi#rho_0): tokens driven by the zero-temperature crowd, see `Prediction`."""
        times = _times(t)
        value = self._prediction(np.atleast_1d(times))[0]
        return float(value[0]) if times.ndim == 0 else torch.from_numpy(value)

    def safe_curve(self, t: Any) -> Any:
        """D0 + .5 sqrt(log(beta+1)/beta) + .5 n^{-1/4}: never seen violated for t <= times.safe, yet no proof (N7).

        times.safe is 0 where the start is not close to zero temperature (`defect` above its limit).
        """
        return (
            self.zero_temperature_curve(t)
            + 0.5 * math.sqrt(math.log1p(self.beta) / self.beta)
            + (0.5 * self.rho0.n**-0.25)
        )

    @property
    def valid_until(self) -> float:
        """Last time at which `curve` claims 15%; 0 where the forecast is out of range from the start.

        Up to here the correction to zero temperature is of first order, attention windows near the separatrix still
        hold tokens, no single token weighs 15%, and tokens on E are far from gathering in clusters. `range_ends`
        says which of these ends the range.
        """
        return self._range.until

    @property
    def range_ends(self) -> str:
        """Why the range of `curve` ends at `valid_until`, in words."""
        return self._range.why

    @cached_property
    def _range(self) -> Range:
        ruled_out = empty_range(self.spectrum, self.n_eff, self.defect)
        return ruled_out or valid_range(self.spectrum, self.n_eff, self.times, self._prediction)

    def in_range(self, t: Any) -> Any:
        """Whether `curve(t)` is claimed to be within 15% of the simulation; nowhere when `valid_until` is 0."""
        times = _times(t)
        inside = (times <= self.valid_until) & (self.valid_until > 0)
        return bool(inside) if times.ndim == 0 else torch.from_numpy(inside)

    def bound(self, path: Any = None, t: float | None = None, frames: int = 65) -> Bound:
        """Rigorous a-posteriori bound along a run of the softmax flow: D0(t) + S3.

        `path` is a run of this flow from rho_0 that starts at time 0; without one the flow is solved to time t
        (default: the crossing time). The only inputs taken from the run are the velocity defects at its saved
        times: the bound is as rigorous as those times resolve the defect. A run of other weights, another beta or
        other tokens is refused.
        """
        if path is None:
            end = t if t is not None else min(self.times.crossing, 20 / self.c)
            grid = np.linspace(0.0, end, frames)
            path = solve(SelfAttention(self.weights, beta=self.beta), self.rho0, t=end, times=grid)
        else:
            check_run(path, self.weights, self.beta, self.rho0)
        zero = torch.as_tensor(self.zero_temperature_curve(np.asarray(path.times)))
        return bound_along(self.spectrum, self.beta, path, self.C, zero)

    @cached_property
    def _priori(self) -> PrioriBound:
        return priori_bound(self.weights, self.beta, self.rho0, self.C)

    def priori_bound(self, t: Any) -> Any:
        """Theorem-type bound S4 of W2(rho_t^beta, Pi#rho_0), at most 2: no run, pessimistic."""
        return self._priori.to_limit(t, self.zero_temperature_curve(t))

    @cached_property
    def _prediction(self) -> Prediction:
        if self.spectrum.kind in ("rotation", "jordan"):
            raise NotDefined(
                f"there is no distance to a limit to predict: M = V B^T is of kind '{self.spectrum.kind}'; "
                "compare with comoving_target(w, points, t) instead"
            )
        check_isolated(self.spectrum)
        return Prediction(self.weights, self.beta, self.rho0, LimitMap(self.spectrum))

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
        finite: dict[str, Any] = _finite(record)
        return finite

    def table(self) -> list[tuple[str, str, str]]:
        """Rows (quantity, value, meaning) for a terminal."""
        s, x = self.spectrum, self.times
        whole = s.kind == "identity"
        rows = [
            (
                "defect at t = 0",
                f"{self.defect:.3g}",
                "rms|m_beta - m_0|: how far the start is from zero temperature",
            ),
            ("kind", s.kind, f"limit of the zero-temperature flow, dim E = {s.dimension}"),
            ("gap", _number(s.gap, "none"), "of M = V B^T" + (", a multiple of the identity" if whole else "")),
            (
                "c",
                _number(self.c, "none"),
                "nothing decays: every token is its own limit" if whole else "rate of W2 to the limit",
            ),
            ("c_local", _number(self.c_local, "none"), "rate close to the limit"),
            ("C", _number(self.C, "none"), "rate at which finite beta can drift away"),
            ("n_eff", _number(self.n_eff), f"tokens per attention window, kappa = {self.kappa:.4g}"),
            ("t concentration", _number(x.concentration), "zero-temperature W2 = sqrt(log(beta+1)/beta)"),
            ("t crossing", _number(x.crossing), "cluster width = (beta |B^T e|)^(-1/2)"),
            (
                "t exit",
                _number(x.exit),
                f"{x.case}; mean field {_number(x.exit_mean_field)}, tokens {_number(x.exit_tokens)}",
            ),
            ("t safe", _number(x.safe), "the safe curve is trusted up to here"),
        ]
        if s.dimension > 1 and s.kind not in ("rotation", "jordan"):
            rows.append(("t clustering", _number(x.clustering), "tokens on E gather in clusters"))
        if s.kind not in ("rotation", "jordan"):
            rows.append(
                ("valid until", _number(self.valid_until), f"the curve claims 15% up to here: {self.range_ends}")
            )
        rows.append(("terminal", self.terminal.kind, self.terminal.sentence))
        return rows


def forecast(
    w: AttentionWeights, beta: float, rho0: Any, *, deterministic: bool = False, seed: int = 0
) -> Forecast:
    """Rates, times of each phase, predicted and bounding W2 curves, terminal space, warnings; metastable's own.

    rho0: a Measure or points. `deterministic` says that the tokens are nodes rather than iid samples (a later safe
    time). Nothing is simulated; the curve is computed when it is asked for.

    >>> from metastable import sphere
    >>> w = AttentionWeights(V=[[2.0, 0.0], [0.0, 1.0]], B=[[1.0, 0.0], [0.0, 1.0]])
    >>> f = forecast(w, 64.0, sphere.equispaced(500))
    >>> f.c, f.c_local, f.times.exit
    (0.5, 1.0, inf)
    """
    check_beta(beta)
    if beta == 0:
        raise InvalidInput("a low-temperature forecast needs beta > 0, got 0")
    rho = tokens(rho0, w.d)
    s = spectrum(w)
    check_isolated(s)
    kappa = float(beta * torch.linalg.vector_norm(w.B_transpose(rho.points), dim=1).median())
    n_eff = float(effective_tokens(rho.n, kappa, rho.d))
    defect = attention_defect(w, rho, beta)
    times = phase_times(s, beta, rho, deterministic, seed)
    if defect > LARGEST_DEFECT:
        # No curve can be read where the start is not close to zero temperature, the safe one included.
        times = replace(times, safe=0.0)
    return Forecast(
        weights=w,
        beta=float(beta),
        rho0=rho,
        spectrum=s,
        rates=rates(s),
        C=growth_constant(w),
        kappa=kappa,
        n_eff=n_eff,
        defect=defect,
        times=times,
        terminal=terminal(s, rho),
        warnings=warnings_at_the_start(s, rho, kappa, n_eff, defect),
    )


def _times(t: Any) -> np.ndarray:
    times = np.asarray(t, dtype=np.float64)
    if times.ndim > 1 or bool((~np.isfinite(times) | (times < 0)).any()):
        raise InvalidInput(f"t must be finite and >= 0, a number or a sequence, got {t}")
    return times


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: float, infinite: str = "never") -> str:
    """A number in digits, or in words: an infinite time is an event that does not happen."""
    return infinite if value == math.inf else "undefined" if math.isnan(value) else f"{value:.4g}"
