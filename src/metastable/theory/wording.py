"""A forecast in words: the rows of its table, and its numbers as JSON can hold them."""

from __future__ import annotations

import math
from typing import Any

from metastable.theory.finite_context import FiniteContext
from metastable.theory.phases import Terminal, Times
from metastable.theory.rates import Rates
from metastable.theory.spectrum import Spectrum

Row = tuple[str, str, str]


def rows(
    s: Spectrum,
    rates: Rates,
    C: float,
    start: tuple[float, float, float],
    times: Times,
    claimed: tuple[float, str] | None,
    sample: FiniteContext | None,
    terminal: Terminal,
) -> list[Row]:
    """(quantity, value, meaning) of a forecast; start: (defect, kappa, n_eff); claimed: the range and its end;
    sample: how far iid tokens are from the limit of their law, where that is known.
    """
    defect, kappa, n_eff = start
    whole, limited = s.kind == "identity", s.kind not in ("rotation", "jordan")
    nothing = "nothing decays: every token is its own limit"
    found = [
        ("defect at t = 0", f"{defect:.3g}", "rms|m_beta - m_0|: how far the start is from zero temperature"),
        ("kind", s.kind, f"limit of the zero-temperature flow, dim E = {s.dimension}"),
        ("gap", number(s.gap, "none"), "of M = V B^T" + (", a multiple of the identity" if whole else "")),
        ("c", number(rates.c, "none"), nothing if whole else "rate of W2 to the limit"),
        ("c_local", number(rates.local, "none"), "rate close to the limit"),
        ("C", number(C, "none"), "rate at which finite beta can drift away"),
        ("n_eff", number(n_eff), f"tokens per attention window, kappa = {kappa:.4g}"),
        ("t concentration", number(times.concentration), "zero-temperature W2 = sqrt(log(beta+1)/beta)"),
        ("t crossing", number(times.crossing), "cluster width = (beta |B^T e|)^(-1/2)"),
        ("t exit", number(times.exit) + within(times), times.ends),
        ("t safe", number(times.safe), "the safe curve is trusted up to here"),
    ]
    if limited and s.dimension > 1:
        found.append(("t clustering", number(times.clustering), "tokens on E gather in clusters"))
    if claimed is not None:
        until, why = claimed
        found.append(("valid until", number(until), f"the curve claims 15% up to here: {why}"))
    if sample is not None:
        known = "claimed to a tenth of W2^2" if sample.in_range else f"not claimed: {sample.why}"
        meaning = f"of {sample.n} iid tokens to the limit of their law at t = {sample.t:.3g}; {known}"
        found.append(("rms W2 of samples", number(sample.rms), meaning))
    return [*found, ("terminal", terminal.kind, terminal.sentence)]


def within(times: Times) -> str:
    """The factor to which the exit is known, to stand beside its number."""
    known = math.isfinite(times.exit) and math.isfinite(times.exit_uncertainty)
    return f" (within x{times.exit_uncertainty:.2g})" if known else ""


def number(value: float, infinite: str = "never") -> str:
    """A number in digits, or in words: an infinite time is an event that does not happen.

    >>> number(1.23456), number(math.inf), number(math.nan)
    ('1.235', 'never', 'undefined')
    """
    return infinite if value == math.inf else "undefined" if math.isnan(value) else f"{value:.4g}"


def finite(value: Any) -> Any:
    """Plain data with None for every number that is infinite or undefined.

    >>> finite({"exit": math.inf, "safe": 1.0})
    {'exit': None, 'safe': 1.0}
    """
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
