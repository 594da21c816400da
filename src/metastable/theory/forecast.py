"""`forecast`: what the theory says about one head, one temperature and some tokens, and how far to trust it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.attention.attend import check_beta
from metastable.errors import InvalidInput, NotDefined
from metastable.flows import SelfAttention
from metastable.measure import Measure
from metastable.solve.solve import solve
from metastable.theory.laplace import attention_defect, effective_tokens
from metastable.theory.limit import LimitMap, check_isolated
from metastable.theory.phases import Terminal, Times, phase_times, terminal
from metastable.theory.picard import Prediction
from metastable.theory.rates import Rates, rates
from metastable.theory.spectrum import Spectrum, spectrum
from metastable.theory.stability import PrioriBound, growth_constant, optimal_time, posteriori_bound, priori_bound
from metastable.theory.tokens import tokens
from metastable.theory.zero_temperature import distance_to_limit
from metastable.weights import AttentionWeights

EFFECTIVE = 10.0
"""Below this many tokens per attention window n tokens do not emulate the mean field (T0.3)."""
REACTION = 0.04
"""Largest |log| of the ratio of the two Picard iterations, the estimate of what the curve still misses."""
CORRECTION = 0.2
"""Largest |log(prediction/zero-temperature distance)| that counts as a first-order correction; beyond it the second
order, which the prediction does not know, was seen to reach 15%."""
LARGE = 0.3
"""The same where a second iteration vouches for the first."""
WINDOW = 1.0
"""Fewest tokens per attention window near the separatrix, where they thin out like e^{-k g_out t} (N4)."""
FLIPS = 3.65
"""W2 in units of sqrt(largest mass) above which one token in the wrong one of two clusters, 4 m in W2^2, changes W2
by less than 15%."""
DEFECT = 0.35
"""Largest rms|m_beta - m_0| at t = 0 for which the zero-temperature picture is a starting point (N10)."""

START = 1e-5
"""How far the first tokens of a path may be from those of the forecast: what single precision leaves of them."""


@dataclass(frozen=True, eq=False)
class Bound:
    """W2(rho_t^beta, Pi#rho_0) <= min(2, zero + drift): exact zero-temperature distance plus the drift bound S3."""

    times: Float[Tensor, "m"]
    zero: Float[Tensor, "m"]
    drift: Float[Tensor, "m"]

    @property
    def values(self) -> Float[Tensor, "m"]:
        """The bound at `times`."""
        return torch.clamp(self.zero + self.drift, max=2.0)


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
        return self._range[0]

    @property
    def range_ends(self) -> str:
        """Why the range of `curve` ends at `valid_until`, in words."""
        return self._range[1]

    @cached_property
    def _range(self) -> tuple[float, str]:
        if self.spectrum.kind in ("rotation", "jordan", "identity"):
            return 0.0, f"M = V B^T is of kind '{self.spectrum.kind}': there is no approach to a limit to predict"
        if not self.spectrum.M.symmetric:
            return 0.0, "M = V B^T is not symmetric"
        if self.n_eff < EFFECTIVE:
            return 0.0, "too few tokens share an attention window"
        if self.defect > DEFECT:
            return 0.0, "the start is too far from zero temperature"
        k = self.spectrum.dimension
        thinning, clustering = (
            math.log(self.n_eff / WINDOW) / (k * self.spectrum.g_out),
            0.5 * self.times.clustering,
        )
        last = min(thinning, clustering)
        grain = FLIPS * math.sqrt(float(self.rho0.mass.max())) if k == 1 else 0.0
        prediction = self._prediction
        i = 0
        while prediction.times[i] < last:
            value, first, bare = prediction.values[i], prediction.first[i], prediction.bare[i]
            before = prediction.times[max(i - 1, 0)]
            if min(value, bare) <= max(grain, 1e-8):
                return before, "W2 has fallen to where a single token weighs 15%"
            if prediction.whole and abs(math.log(value / first)) > REACTION:
                return before, "the crowd that finite beta has displaced acts back on itself"
            if abs(math.log(first / bare)) > (LARGE if prediction.whole else CORRECTION):
                return before, "the correction to zero temperature is no longer of first order"
            i += 1
            if i == len(prediction.times):
                prediction.extend(prediction.times[-1] + prediction.step / 2)
        if clustering < thinning:
            return last, "tokens on E begin to gather in clusters"
        return last, "attention windows near the separatrix run out of tokens"

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
            self._check_path(path)
        drift = posteriori_bound(self.weights, self.beta, path, self.C)
        zero = torch.as_tensor(self.zero_temperature_curve(np.asarray(path.times)))
        return Bound(drift.times, zero, drift.bound)

    def _check_path(self, path: Any) -> None:
        """Refuse a run that is not one of this flow from rho_0."""
        ran = getattr(path, "provenance", {}).get("parameters", {}).get("flow", {})
        own = SelfAttention(self.weights, beta=self.beta).describe()
        if ran.get("flow", own["flow"]) != own["flow"]:
            raise InvalidInput(f"the bound is for a path of the flow {own['flow']}, got a path of {ran['flow']}")
        if ran.get("beta", self.beta) != self.beta:
            raise InvalidInput(f"the forecast is for beta = {self.beta:g}, but the path was run at {ran['beta']}")
        if ran.get("weights", {}).get("sha256") not in (None, own["weights"]["sha256"]):
            raise InvalidInput("the path was run with other weights than those of the forecast")
        points = path.points
        if tuple(points.shape[1:]) != (self.rho0.n, self.rho0.d):
            raise InvalidInput(
                f"the forecast is for {self.rho0.n} tokens in dimension {self.rho0.d}, but the path holds "
                f"{points.shape[1]} tokens in dimension {points.shape[2]}"
            )
        away = float((points[0].to(self.rho0.points) - self.rho0.points).abs().max())
        heavier = float((path.mass.to(self.rho0.mass) - self.rho0.mass).abs().max())
        if away > START or heavier > START:
            raise InvalidInput(
                f"the path must start from the tokens of the forecast, got tokens up to {away:.3g} away and masses "
                f"up to {heavier:.3g} different"
            )

    @cached_property
    def _priori(self) -> PrioriBound:
        return priori_bound(self.weights, self.beta, self.rho0, self.C)

    def priori_bound(self, t: Any) -> Any:
        """Theorem-type bound S4: min(2, D0(t) + ||V|| int e^{L_0(t-s)} laplace(s) ds); no run, pessimistic."""
        total = self._priori(t) + self.zero_temperature_curve(t)
        return min(2.0, total) if isinstance(total, float) else torch.clamp(total, max=2.0)

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
            ("gap", _rate(s.gap), "of M = V B^T" + (", a multiple of the identity" if whole else "")),
            (
                "c",
                _rate(self.c),
                "nothing decays: every token is its own limit" if whole else "rate of W2 to the limit",
            ),
            ("c_local", _rate(self.c_local), "rate close to the limit"),
            ("C", _rate(self.C), "rate at which finite beta can drift away"),
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
    if defect > DEFECT:
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
        warnings=_warnings(s, rho, kappa, n_eff, defect),
    )


def _warnings(s: Spectrum, rho: Measure, kappa: float, n_eff: float, defect: float) -> tuple[str, ...]:
    found = []
    if defect > DEFECT:
        found.append(
            f"the zero-temperature picture is off at t = 0 already: rms|m_beta - m_0| = {defect:.2f} "
            f"(more than {DEFECT:g}); read no curve from it"
        )
    if n_eff < EFFECTIVE:
        found.append(
            f"{rho.n} tokens cannot emulate the mean field at this temperature: n_eff = {n_eff:.2g} tokens share "
            f"an attention window and at least {EFFECTIVE:g} are needed; isolated tokens follow V at once"
        )
    if kappa < rho.d - 1:
        found.append(f"this is not low temperature: kappa = {kappa:.3g} is below d - 1 = {rho.d - 1}")
    if not s.M.symmetric:
        found.append("M = V B^T is not symmetric: rates and curves are extrapolations, no range is claimed")
    found.extend(a.sentence for a in s.assumptions if a.name == "limit exists" and not a.holds)
    return tuple(found)


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
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _rate(value: float) -> str:
    return "none" if value == math.inf else "undefined" if math.isnan(value) else f"{value:.4g}"


def _number(value: float) -> str:
    """A time in words or digits; an infinite one is an event that does not happen."""
    return "never" if value == math.inf else "undefined" if math.isnan(value) else f"{value:.4g}"
