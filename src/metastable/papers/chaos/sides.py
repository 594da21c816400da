"""Claims about n in the main theorem, dim E = 1: how far n iid tokens at finite beta are from Pi#rho_0."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from metastable.drawing import Lines
from metastable.flows import SelfAttention
from metastable.measure import Ensemble, Measure
from metastable.papers.agreement import agreement_figure
from metastable.papers.chaos.sampling import Mean, counts_figure, pooled, uniform_contexts
from metastable.papers.claim import Outcome, Setting
from metastable.papers.own_error import OwnError, with_systematic
from metastable.papers.reading import fine
from metastable.papers.verdict import ESTIMATE
from metastable.solve import solve
from metastable.theory import FiniteContext, effective_tokens, finite_context, side_influence, spectrum
from metastable.theory.finite_context import SATURATION
from metastable.weights import AttentionWeights

THEME = "Finite context in the main theorem"


class Case(NamedTuple):
    """V = diag(l1, l2, l2, ...), B = I, uniform law on S^{d-1}, at one inverse temperature."""

    d: int
    top: float
    rest: float
    beta: float

    @property
    def weights(self) -> AttentionWeights:
        """The head."""
        return AttentionWeights(V=np.diag([self.top] + [self.rest] * (self.d - 1)), B=np.eye(self.d))

    @property
    def time(self) -> float:
        """When tokens are there."""
        return TIME / (self.top - self.rest)

    @property
    def label(self) -> str:
        """In the legend."""
        return f"d = {self.d}, β = {self.beta:g}, λ = {self.top:g}, {self.rest:g}"


CASES = {
    Case(2, 2.0, 1.0, 16.0): ((32, 64), (32, 64, 128, 256)),
    Case(2, 2.0, 1.0, 32.0): ((64, 96), (64, 128, 256, 512)),
    Case(2, 2.0, 1.0, 64.0): ((64, 96), (64, 128, 256, 512)),
    Case(2, 1.0, 0.0, 16.0): ((32, 64), (32, 64, 128, 256)),
    Case(3, 2.0, 1.0, 16.0): ((64, 96), (64, 96, 128, 256)),
    Case(3, 1.0, -0.5, 32.0): ((), (128, 192, 256, 512)),
    Case(4, 2.0, 1.0, 16.0): ((128,), (128, 192, 256, 512)),
}
"""Numbers of tokens in a quick run and in a full one, from four tokens per attention window on."""
DRAWS, TOKENS = (600, 240), 120_000
"""Samples of each in a quick and a small run, and tokens in all samples of one number in a full one: few samples of
many tokens, whose runs cost n each, so that the largest n takes as long as all others together. With 600 the rival
"independent shift" is some three of its standard errors from where it would no longer fail; with 280, one."""
NODES = 1000
"""Heights on either side that stand for the law."""
TIME = 5.0  # when tokens are there, in units of 1/gap
SATURATION_ERROR = 0.1
"""How well the saturation of attention windows is known, as a share (`tests/theory/test_finite_context.py`)."""


class Sample(NamedTuple):
    """Measured E W2^2 of one case and number, and what the formula says."""

    case: Case
    n: int
    measured: Mean
    formula: FiniteContext


def squared_distance(heights: np.ndarray) -> np.ndarray:
    """Exact W2^2 to half of the mass at each pole, from heights (draws, n), n even: the upper half goes up."""
    n = heights.shape[1]
    sign = np.repeat([1.0, -1.0], n // 2)
    return np.asarray((2 - 2 * sign * -np.sort(-heights, axis=1)).mean(axis=1))


@cache
def law(d: int) -> Measure:
    """The uniform law as far as heights over E^perp go, on which all depends here: on a meridian, by quantiles."""
    from scipy import stats

    height = np.sqrt(stats.beta.ppf((np.arange(NODES) + 0.5) / NODES, 0.5, (d - 1) / 2))
    points = np.zeros((2 * NODES, d))
    points[:, 0] = np.concatenate([-height, height])
    points[:, 1] = np.sqrt(1 - points[:, 0] ** 2)
    return Measure(points)


@cache
def formula(case: Case, n: int) -> FiniteContext:
    """What n tokens are said to add when they are there."""
    return finite_context(spectrum(case.weights), case.beta, law(case.d), n, case.time)


@cache
def uncorrelated(case: Case, n: int) -> float:
    """What attention would add if the shift of the separatrix did not go with the sides of the tokens."""
    rho = law(case.d)
    psi = side_influence(spectrum(case.weights), case.beta, rho)
    window = float(effective_tokens(n, case.beta, case.d))
    alone = window / (window + SATURATION) * float(rho.mass @ psi**2)
    together = alone + 2 * window / (window + SATURATION) * float(rho.mass @ (psi.abs() / 2))
    return formula(case, n).context * (math.sqrt(0.25 + alone) - 0.5) / (math.sqrt(0.25 + together) - 0.5)


@cache
def samples(setting: Setting) -> tuple[Sample, ...]:
    """All of them."""
    return tuple(_samples(setting))


def _samples(setting: Setting) -> Iterator[Sample]:
    for case, n in cases(setting):
        tokens = Ensemble(
            uniform_contexts(draws(setting, n), n, case.d, setting.seeds(1, 90, list(CASES).index(case), n)[0])
        )
        path = solve(SelfAttention(case.weights, case.beta), tokens, t=case.time, rtol=1e-3, atol=1e-3)
        measured = Mean.of(squared_distance(path.points[-1][..., 0].numpy()))
        yield Sample(case, n, measured, formula(case, n))


def left_out(case: Case, n: int) -> float:
    """The formula's own error in W2^2 (X7): (d-1)/(2 beta) of what attention adds, and that of the saturation."""
    window = float(effective_tokens(n, case.beta, case.d))
    saturation = SATURATION_ERROR * (window + SATURATION) / window
    return formula(case, n).context * ((case.d - 1) / (2 * case.beta) + saturation)


def draws(setting: Setting, n: int) -> int:
    """Samples of n tokens."""
    quick, small = DRAWS
    return setting.choose(quick, TOKENS // n, small)


def cases(setting: Setting) -> list[tuple[Case, int]]:
    """Every case with its numbers of tokens."""
    return [(case, n) for case, numbers in CASES.items() for n in setting.choose(*numbers)]


def law_experiment(setting: Setting) -> Outcome:
    """Measured E W2^2 over the formula, in the mean; rivals scale the formula from the first number of a case."""
    first = {one.case: one for one in reversed(samples(setting))}
    ratios = []
    rivals: dict[str, list[Mean]] = {"no dependence on n": [], "n^(-1)": [], "n^(-2/d)": [], "width alone": []}
    for one in samples(setting):
        start, width = first[one.case], one.formula.width
        more, noise = one.n / start.n, start.formula.squared - start.formula.width
        others = (width + noise, width + noise / more, width + noise / more ** (2 / one.case.d), width)
        ratios.append(Mean(*(value / one.formula.squared for value in one.measured)))
        for name, other in zip(rivals, others, strict=True):
            if more > 1:
                rivals[name].append(Mean(*(value / other for value in one.measured)))
    outcome = Outcome(
        *pooled(ratios),
        rivals={name: pooled(values) for name, values in rivals.items()},
        curves=_curves(setting),
        table=[_row(one) for one in samples(setting)],
        note="the mean over the cases of the table",
    )
    parts = [left_out(one.case, one.n) / one.formula.squared for one in samples(setting)]
    return with_systematic(outcome, float(np.mean(parts)))


def _row(one: Sample) -> dict[str, float]:
    return {
        "d": one.case.d,
        "l1": one.case.top,
        "l2": one.case.rest,
        "beta": one.case.beta,
        "n": one.n,
        "t": one.formula.t,
        "E W2^2": one.measured.value,
        "standard error": one.measured.error,
        "formula": one.formula.squared,
        "of it attention": one.formula.context,
        "tokens per window": float(effective_tokens(one.n, one.case.beta, one.case.d)),
    }


def _curves(setting: Setting) -> dict[str, np.ndarray]:
    """W2^2 against n for the cases with l = 2, 1."""
    shown = [case for case in CASES if case.top == 2.0 and case.beta != 32.0]
    counts = sorted({n for case, n in cases(setting) if case in shown})
    curves = {"n": np.array(counts, dtype=float), "fine": fine(counts, 13)}
    for case in shown:
        found = {one.n: one.measured for one in samples(setting) if one.case == case}
        missing = Mean(math.nan, math.nan)
        value, error = np.array([found.get(n, missing) for n in counts]).T
        line = [formula(case, round(n)).squared for n in curves["fine"]]
        curves |= {f"measured {case.label}": value, f"error {case.label}": error}
        curves[f"theory {case.label}"] = np.array(line)
    return curves


def law_figure(outcome: Outcome) -> Lines:
    """E W2^2 against n."""
    return counts_figure(outcome, "n iid tokens against Π#ρ₀, t = 5; lines: formula", "E W₂(ρ_tⁿ, Π#ρ₀)²")


def share(setting: Setting, added: Callable[[Case, int], float]) -> Mean:
    """What is measured beyond width and sampling over what attention is said to add, by least squares."""
    error, x = _weighted(setting, added)
    known = [one.formula.width + one.formula.sampling for one in samples(setting)]
    y = (np.array([one.measured.value for one in samples(setting)]) - known) / error
    return Mean(float(x @ y / (x @ x)), float(1 / math.sqrt(x @ x)))


def _weighted(setting: Setting, added: Callable[[Case, int], float]) -> tuple[np.ndarray, np.ndarray]:
    """Standard errors of the samples, and what is added in units of them."""
    error = np.array([one.measured.error for one in samples(setting)])
    return error, np.array([added(one.case, one.n) for one in samples(setting)]) / error


def attention_experiment(setting: Setting) -> Outcome:
    """The share of what attention is said to add."""
    curves: dict[str, np.ndarray] = {}
    for d in sorted({case.d for case, _ in cases(setting)}):
        group = [one for one in samples(setting) if one.case.d == d]
        beyond = [one.measured.value - one.formula.width - one.formula.sampling for one in group]
        curves |= {f"measured d = {d}": np.array(beyond)}
        curves[f"expected d = {d}"] = np.array([one.formula.context for one in group])
        curves[f"error d = {d}"] = np.array([one.measured.error for one in group])
    outcome = Outcome(
        *share(setting, context),
        rivals={"sampling alone": 0.0, "independent shift": share(setting, uncorrelated)},
        curves=curves,
        table=[_row(one) for one in samples(setting)],
        note="a mean over the cases of the table, by their standard errors",
    )
    x, left = (_weighted(setting, added)[1] for added in (context, left_out))
    return with_systematic(outcome, float(x @ left / (x @ x)))


def context(case: Case, n: int) -> float:
    """What attention is said to add."""
    return formula(case, n).context


def attention_figure(outcome: Outcome) -> Lines:
    """What attention adds, measured against predicted."""
    title = "What the noise of attention adds to E W₂²"
    return agreement_figure(outcome, title, "formula", "measured − width − sampling")


LEFT_OUT = "the order 1/beta of what attention adds, and the saturation of its windows, known to a tenth"

CLAIMS = (
    OwnError(
        "finite-context-law",
        lambda setting: (
            "n iid tokens at inverse temperature beta are on average W2^2 = 4 E|p_n - p| away from Pi#rho_0 once "
            "they are concentrated, dim E = 1, p_n normal with variance Var(phi)/n, phi the side of a token and "
            f"its influence on the separatrix: {len(cases(setting))} choices of d = 2, 3 and 4, beta from 16 to "
            f"64, and n from {min(n for _, n in cases(setting))} to {max(n for _, n in cases(setting))}."
        ),
        law_experiment,
        expected=1.0,
        reason=LEFT_OUT,
        source=ESTIMATE,
        figure=law_figure,
        theme=THEME,
        unit="measured / formula, in the mean",
        effort=10,
        rivals={
            "no dependence on n": "What n tokens add is that of the smallest n.",
            "n^(-1)": "W2^2 falls like 1/n, as for a law on a circle.",
            "n^(-2/d)": "W2 falls like n^(-1/d), as the general bound.",
            "width alone": "The distance is that of infinitely many tokens.",
        },
    ),
    OwnError(
        "finite-context-attention",
        "What the noise of attention adds to E W2^2 beyond the sampling of sides, by the shift of the separatrix "
        "that n tokens cause, is that of the formula.",
        attention_experiment,
        expected=1.0,
        reason=LEFT_OUT,
        source=ESTIMATE,
        figure=attention_figure,
        theme=THEME,
        unit="share of what is predicted",
        effort=10,
        rivals={
            "sampling alone": "Finite context matters through the sampling of sides alone, a binomial number.",
            "independent shift": "The shift of the separatrix is independent of the sides: variances add.",
        },
    ),
)
