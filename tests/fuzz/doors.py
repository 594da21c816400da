"""Malformed calls of every public name: each returns, or refuses in one line with an exception of metastable's own.

A case takes one public function, constructor or method, fills its parameters with arguments that are right, and
replaces a few of them by strange ones. What is public is read from the package, so that a new name is tried without
being listed here; only what is a right argument for a parameter is written down, by the parameter's name.
"""

from __future__ import annotations

import inspect
import itertools
import math
import os
import random
import tempfile
import types
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import metastable as ms
from metastable import papers, spectral, theory
from metastable.errors import MetastableError
from metastable.measure import Ensemble
from metastable.weights import OrnsteinUhlenbeck, Target

LONGEST_SENTENCE = 300
"""Characters of a refusal: names, a value of at most 60, what was expected, and what to do instead."""


class Hostile:
    """An object that refuses every courtesy."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __float__(self) -> float:
        raise KeyError("no float")

    def __index__(self) -> int:
        raise KeyError("no index")

    def __iter__(self) -> Any:
        raise KeyError("no iteration")

    def __len__(self) -> int:
        raise KeyError("no length")

    def __bool__(self) -> bool:
        raise KeyError("no truth")

    def __fspath__(self) -> str:
        raise KeyError("no place")


STRANGE: tuple[Callable[[], Any], ...] = tuple(
    (lambda value=value: value)
    for value in (
        None, True, False, 0, 1, -1, 3, 2**63, -(2**63), 10**400, 0.0, -0.0, 0.5, -2.5, 5e-324, 1e308, math.inf,
        -math.inf, math.nan, 1j, complex(math.nan, 1), "", "3", "abc", "\0", "x" * 5000, "[[1, 2]]", b"", b"abc",
        (), [], [[]], [[[]]], {}, {"a": 1}, set(), frozenset({1}), [1, 2, 3], [1.0], [[1.0, 2.0], [3.0]],
        [[1, "a"]], [None], [math.nan, 1.0], ["a", "b"], (1, 2), range(3), slice(2), int, float, print, len, object,
        object(), lambda: 1, lambda *a: "text", lambda *a: None, Ellipsis, NotImplemented, Exception("e"),
        Hostile(),
    )
) + (
    lambda: np.float32(0.3), lambda: np.int8(-5), lambda: np.bool_(True), lambda: np.str_("a"),
    lambda: np.array(2.0), lambda: np.array([]), lambda: np.zeros((0, 2)), lambda: np.zeros((2, 0)),
    lambda: np.zeros(3), lambda: np.ones((2, 2)), lambda: np.ones((3, 3)), lambda: np.full((2, 2), np.nan),
    lambda: np.ones((2, 2, 2)), lambda: np.array([1j, 2.0]), lambda: np.array(["a", "b"]),
    lambda: np.array([None, object()]),
    lambda: np.array("2020-01-01", dtype="datetime64"), lambda: np.full((3, 2), 1e308), lambda: np.eye(2) * 5e-324,
    lambda: torch.zeros(()), lambda: torch.zeros(0), lambda: torch.zeros(3, 2), lambda: torch.ones(2, 2),
    lambda: torch.ones(2, 3, dtype=torch.float32), lambda: torch.ones(2, dtype=torch.int64),
    lambda: torch.tensor([1j]), lambda: torch.full((4, 2), math.inf), lambda: torch.ones(2, 2, requires_grad=True),
    lambda: torch.ones(2, 2, dtype=torch.float16), lambda: torch.ones(2, 2).to_sparse(),
    lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(1)]), lambda: torch.ones(2, 2, device="meta"),
    lambda: torch.ones(6, 2, dtype=torch.float64, device="meta"), lambda: itertools.count(), lambda: range(10**9),
    lambda: torch.float32, lambda: torch.int32, lambda: torch.Generator(), lambda: Path("nowhere"),
    lambda: iter([1]), lambda: (i for i in range(2)), lambda: ms.Measure([[1.0, 0.0]]),
    lambda: ms.Measure([[1.0, 0.0, 0.0]]), lambda: ms.AttentionWeights(V=np.eye(3), B=np.eye(3)),
    lambda: ms.AttentionWeights, lambda: Ensemble(np.ones((2, 6, 2))), lambda: Ensemble(np.ones((1, 1, 3))),
    lambda: ms.AttentionWeights(V=np.zeros((2, 2)), B=np.zeros((2, 2))),
)  # fmt: skip
"""What a careless or hostile caller passes."""


@cache
def head() -> ms.AttentionWeights:
    return ms.AttentionWeights(V=[[2.0, 0.0], [0.0, 1.0]], B=[[1.0, 0.0], [0.0, 1.0]])


@cache
def head_of_one() -> ms.AttentionWeights:
    return ms.AttentionWeights(V=np.eye(2), B=np.eye(2))


@cache
def tokens() -> ms.Measure:
    return ms.Measure(ms.sphere.uniform(6, 2, seed=1))


@cache
def flow() -> ms.SelfAttention:
    return ms.SelfAttention(head(), 2.0)


@cache
def path() -> ms.Path:
    return ms.solve(flow(), tokens(), 0.2, times=3)


@cache
def weights_process() -> OrnsteinUhlenbeck:
    return OrnsteinUhlenbeck(Target.resting(2), 0.2, 2)


@cache
def descending() -> ms.flows.HeadDescent:
    return ms.flows.HeadDescent(weights_process())


@cache
def descended() -> ms.Path:
    return ms.solve(descending(), tokens(), 0.2, times=3)


@cache
def watcher() -> ms.Monitor:
    torch.manual_seed(0)
    block = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    encoder = ms.encoders.load(torch.nn.TransformerEncoder(block, 2, enable_nested_tensor=False))
    return ms.Monitor.calibrate(encoder, [torch.randn(9, 8) for _ in range(80)])


def claim() -> papers.Claim:
    return papers.Claim("one", "One.", lambda setting: papers.Outcome(1.0), 1.0, 0.1, "rounding", "arithmetic")


RIGHT: dict[str, Callable[[], Any]] = {
    **dict.fromkeys(("w", "weights"), head),
    **dict.fromkeys(("rho", "rho0", "a", "b", "measure"), tokens),
    **dict.fromkeys(("points", "queries", "keys", "x", "y", "targets", "u"), lambda: tokens().points),
    **dict.fromkeys(("V", "B", "Q", "K", "matrix"), lambda: np.eye(2)),
    **dict.fromkeys(("t", "gap_time", "step"), lambda: 0.2),
    **dict.fromkeys(("vectors", "tangents", "velocity"), lambda: torch.zeros(6, 2, dtype=torch.float64)),
    **dict.fromkeys(("destination", "out"), lambda: os.path.join(tempfile.mkdtemp(), "made")),
    **dict.fromkeys(("mean", "direction", "axis", "normal"), lambda: [1.0, 0.0]),
    "mass": lambda: tokens().mass,
    "beta": lambda: 2.0,
    "kappa": lambda: 3.0,
    "flow": flow,
    "loss": lambda: lambda x: x.sum(),
    "heads": lambda: [flow()],
    "layers": lambda: [head(), head()],
    "function": lambda: lambda t: head(),
    "observable": lambda: lambda *points: 0.1,
    "path": path,
    "n": lambda: 7,
    "d": lambda: 2,
    "k": lambda: 1,
    "degree": lambda: 4,
    "index": lambda: 0,
    "angles": lambda: [0.1, 0.2],
    "basis": lambda: [[1.0], [0.0]],
    "location": lambda: "nowhere.zarr",
    "s": lambda: theory.spectrum(head()),
    "spectrum": lambda: theory.spectrum(head()),
    "m": lambda: theory.spectrum(head()).M,
    "paper": lambda: [claim()],
    "jobs": lambda: 1,
    "names": lambda: None,
    "law": lambda: ms.meanfield.Uniform(2),
    "laws": lambda: [ms.meanfield.Uniform(2)],
    "strength": lambda: 0.5,
    "level": lambda: 0.5,
    "height": lambda: 0.5,
    "ratio": lambda: 2.0,
    "offset": lambda: 0.1,
    "cap_mass": lambda: lambda h: np.asarray(h) * 0.4 + 0.1,
    "size": lambda: 1.0,
    "C": lambda: 1.0,
    "c": lambda: 1.0,
    "eigenvalues": lambda: (2.0, 1.0),
    "start": lambda: 0.3,
    "end": lambda: 0.2,
    "dimension": lambda: 3,
}
"""Right arguments by the name of a parameter; one that is not here stays at its default."""

RIGHT_FOR: dict[str, dict[str, Callable[[], Any]]] = {
    "ms.attention.attend_batch": {
        "queries": lambda: torch.ones(2, 3, 2, dtype=torch.float64),
        "keys": lambda: torch.ones(2, 3, 2, dtype=torch.float64),
        "mass": lambda: None,
    },
    "ms.Ensemble": {"points": lambda: torch.ones(2, 3, 2), "mass": lambda: None},
    "ms.attention.hardmax": {"values": lambda: tokens().points},
    "ms.meanfield.Density": {"function": lambda: lambda x: np.ones(len(x))},
    "ms.meanfield.solve": {"density": lambda: ms.meanfield.Uniform(2), "tol": lambda: 1e-2},
    "ms.meanfield.solve_flow": {"density": lambda: ms.meanfield.Uniform(2), "tol": lambda: 1e-2},
    "ms.meanfield.evolve_density": {"density": lambda: ms.meanfield.Uniform(2), "times": lambda: [0.0, 0.1]},
    "ms.meanfield.solve_axial": {
        "w": lambda: ms.AttentionWeights(V=np.diag([2.0, 1.0, 1.0]), B=np.eye(3)),
        "density": lambda: ms.meanfield.Uniform(3),
        "times": lambda: [0.0, 0.1],
        "axis": lambda: [1.0, 0.0, 0.0],
        "tol": lambda: 1e-2,
    },
    "ms.meanfield.nodes": {"density": lambda: ms.meanfield.Uniform(2), "n": lambda: 16},
    "ms.meanfield.polar_nodes": {"density": lambda: ms.meanfield.Uniform(3), "pole": lambda: [0.0, 0.0, 1.0]},
    "ms.meanfield.Mixture": {"weights": lambda: None},
    "ms.meanfield.limit_mass": {"normal": lambda: np.array([1.0, 0.0])},
    "ms.meanfield.two_atom_distance": {"axis": lambda: np.array([1.0, 0.0]), "p": lambda: 0.5},
    "ms.spectral.leading": {"values": lambda: np.array([2.0 + 0j, 1.0])},
    "ms.theory.transported_density": {"density": lambda: lambda x: torch.ones(len(x), dtype=torch.float64)},
    "ms.theory.PureMode": {"axis": lambda: 0, "plus": lambda: 2, "minus": lambda: 1},
    "ms.theory.mixed_equilibria": {"a": lambda: 2.0, "b": lambda: -3.0},
    "ms.theory.mixed_points": {"q": lambda: 0.3},
    "ms.theory.split_factor": {"value": lambda: -2.0},
    "ms.theory.split_threshold": {"value": lambda: -2.0},
    "ms.theory.closing_speed": {"angle": lambda: 1.0},
    "ms.theory.polygon_rate": {"mode": lambda: 1, "corners": lambda: 3},
    "ms.theory.token_rate": {"corners": lambda: 3},
    "ms.theory.planar_travel_time": {"b": lambda: (1.0, 2.0)},
    "ms.theory.smooth_mean": {
        "direction": lambda: tokens().points,
        "kappa": lambda: torch.full((6,), 30.0, dtype=torch.float64),
        "gradient_log_density": lambda: torch.zeros(6, 2, dtype=torch.float64),
    },
    "ms.observe.head_energies": {"flow": lambda: ms.MultiHead([ms.UnnormalizedAttention(head_of_one(), 1.0)])},
    "ms.theory.weight_derivative": {"direction": lambda: np.diag([1.0, -1.0])},
    "ms.theory.FiniteContext": {
        **dict.fromkeys(("width", "sampling", "context"), lambda: 0.1),
        "why": lambda: "",
    },
    "ms.theory.critical_beta": {"mass": lambda: 0.3},
    "ms.theory.escape_rate": {"mass": lambda: 0.3},
    "ms.theory.tilting_rate": {"mass": lambda: 0.3},
    "ms.theory.retrieval_profile": {"s": lambda: 0.5},
    "ms.theory.log_retrieval_profile": {"s": lambda: 0.5},
    "ms.theory.multihead_profile": {"s": lambda: 0.5, "heads": lambda: [(1.0, 1.0, 1.0), (-2.0, 0.5, 1.0)]},
    "ms.transport.ground_cost": {"x": lambda: tokens().points.numpy(), "y": lambda: tokens().points.numpy()},
    "ms.drawing.draw": {
        "figure": lambda: ms.drawing.Lines("t", "x", "y", [ms.drawing.Series([0, 1], [0, 1], "a")]),
        "destination": lambda: os.path.join(tempfile.mkdtemp(), "made.png"),
    },
    "ms.sphere.chordal_distance": {"a": lambda: tokens().points, "b": lambda: tokens().points},
    "ms.sphere.geodesic_distance": {"a": lambda: tokens().points, "b": lambda: tokens().points},
    "ms.flows.CommonNoise": {"activation": lambda: "linear"},
    "ms.flows.Covariance": {"name": lambda: "own", "function": lambda: lambda g: g, "slope": lambda: 1.0},
    "ms.theory.TwoPointMotion": {"kappa": lambda: "relu", "d": lambda: 3},
    "ms.theory.largest_dimension": {"kappa": lambda: "tanh"},
    "ms.flows.HeadDescent": {"heads": lambda: np.eye(2)},
    "ms.observe.energy_balance": {"flow": descending, "path": descended},
    "ms.observe.head_dissipation": {"flow": descending},
    "ms.observe.weight_gradient": {"flow": descending},
    "ms.observe.EnergyBalance": dict.fromkeys(
        ("times", "energy", "supplied", "ito", "martingale", "dissipated"),
        lambda: torch.zeros(3, dtype=torch.float64),
    ),
    "ms.audit": {"encoder": lambda: None},
    "ms.theory.forecast": {"w": head, "beta": lambda: 8.0, "rho0": tokens},
    "ms.Monitor.calibrate": {"encoder": lambda: watcher().encoder, "texts": lambda: [torch.randn(9, 8)] * 80},
    "ms.Monitor.load": {"path": lambda: "nowhere.npz"},
    "ms.monitor.Stream": {"whole": lambda: watcher().calibration.whole, "rate": lambda: 0.1, "seed": lambda: 0},
    "ms.monitor.report": {"monitor": watcher, "texts": lambda: [torch.randn(9, 8)]},
    "monitor.attach": {"model": lambda: watcher().model},
    "monitor.save": {"path": lambda: os.path.join(tempfile.mkdtemp(), "made.npz")},
    "stream.add": {"score": lambda: 1.0},
    **{
        f"monitor.{name}": {"texts": lambda: [torch.randn(9, 8)], "batch": lambda: [torch.randn(9, 8)]}
        for name in ("score", "measure", "embed", "drift")
    },
    "ms.encoders.load": {"source": lambda: "no-such-model"},
}
"""Right arguments for one function, where the name of the parameter means something else there."""

ALWAYS = {"jobs", "paper"}
"""Parameters that are given although they have a default: a whole paper on all cores is not what is tried here."""

INSTANCES: dict[str, Callable[[], Any]] = {
    "weights": head,
    "factored weights": lambda: ms.AttentionWeights.from_qkv(
        [[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 1.0]], [[1.0], [0.5]]
    ),
    "measure": tokens,
    "ensemble": lambda: Ensemble(ms.sphere.uniform(6, 2, seed=1).view(2, 3, 2)),
    "self-attention": flow,
    "unnormalized": lambda: ms.UnnormalizedAttention(head(), 2.0),
    "rescaled": lambda: ms.flows.RescaledAttention(head(), 2.0),
    "zero temperature": lambda: ms.ZeroTemperature(head()),
    "hardmax": lambda: ms.Hardmax(head()),
    "ReLU": lambda: ms.flows.ReLUAttention(head()),
    "heads": lambda: ms.MultiHead([flow()]),
    "head energies": lambda: ms.observe.head_energies(tokens(), ms.UnnormalizedAttention(head_of_one(), 1.0)),
    "axisymmetric": lambda: ms.flows.AxisymmetricAttention(3, 2.0),
    "causal": lambda: ms.flows.Causal(flow(), 1.0),
    "common noise": lambda: ms.flows.CommonNoise(flow(), "relu"),
    "covariance": lambda: ms.flows.Covariance.of_activation("relu"),
    "two-point motion": lambda: theory.TwoPointMotion("relu", 3),
    "path": path,
    "flow of many": lambda: ms.SelfAttention(head(), [1.0, 2.0]),
    "path of many": lambda: ms.solve(flow(), Ensemble(ms.sphere.uniform(6, 2, seed=1).view(2, 3, 2)), 0.2),
    "spectrum": lambda: theory.spectrum(head()),
    "dominant": lambda: spectral.dominant(np.diag([2.0, 1.0])),
    "limit map": lambda: theory.limit_map(head()),
    "forecast": lambda: theory.forecast(head(), 8.0, tokens()),
    "pure mode": lambda: theory.PureMode((2.0, 1.0), 0, 2, 1, 1.0),
    "cluster": lambda: theory.Cluster(1.0, 2.0, 4.0, 1.0, 100.0),
    "uniform law": lambda: ms.meanfield.Uniform(2),
    "vMF law": lambda: ms.meanfield.VonMisesFisher([1.0, 0.0], 3.0),
    "claim": claim,
    "target": lambda: Target.oscillating(2, 2),
    "random weights": weights_process,
    "descent": descending,
    "monitor": watcher,
    "stream": lambda: watcher().stream(rate=0.1),
}
"""Objects whose methods are tried."""

PROTOCOL = {
    "drift", "ambient_drift", "evaluate", "attention", "rate", "weights_at", "advance", "begin", "refusal", "gap",
    "apply_after_average", "evaluate_many", "gaps", "judge", "once", "can", "available", "at_tolerance",
    "combined", "heads_at", "pullback", "noise", "noise_sizes", "field", "function", "launched",
}  # fmt: skip
"""Methods that the engine calls with what it has checked: a stepper's, a kernel's, a flow's inner ones."""

NOT_TRIED = {
    "ms.papers.write_report",  # draws for seconds
    "ms.attention.Operands",  # what kernels are handed, built from checked arguments
    "ms.monitor.Attachment",  # made by Monitor.attach, from checked arguments
}


def _written_here(member: Any) -> bool:
    return str(getattr(member, "__module__", "")).startswith("metastable")


@cache
def doors() -> dict[str, Callable[..., Any]]:
    """Every public callable by its name: functions and constructors of the package and its rooms, and methods."""
    found: dict[str, Callable[..., Any]] = {}
    known: set[int] = set()

    def add(name: str, thing: Any) -> None:
        exception = isinstance(thing, type) and issubclass(thing, BaseException)
        abstract = inspect.isabstract(thing) or getattr(thing, "_is_protocol", False)
        if callable(thing) and id(thing) not in known and name not in NOT_TRIED and not (exception or abstract):
            known.add(id(thing))
            found[name] = thing

    for name in ms.__all__:
        thing = getattr(ms, name)
        if callable(thing):
            add(f"ms.{name}", thing)
            if isinstance(thing, type):
                for own, method in inspect.getmembers(thing, inspect.ismethod):
                    if not own.startswith("_") and own in vars(thing):
                        add(f"ms.{name}.{own}", method)
        if isinstance(thing, types.ModuleType):
            for own in getattr(thing, "__all__", [key for key in vars(thing) if not key.startswith("_")]):
                member = getattr(thing, own)
                listed = own in getattr(thing, "__all__", ()) or getattr(member, "__module__", "") == thing.__name__
                plain = isinstance(member, types.ModuleType) and not callable(member)
                if listed and not plain and _written_here(member):
                    add(f"ms.{name}.{own}", member)
    for label, make in INSTANCES.items():
        thing = make()
        for own, member in inspect.getmembers(type(thing)):  # of the class: a property is not a door
            if not own.startswith("_") and own not in PROTOCOL and callable(member) and _written_here(member):
                found[f"{label}.{own}"] = getattr(thing, own)
        if callable(thing) and _written_here(thing):
            found[f"{label}()"] = thing
        if hasattr(thing, "__getitem__"):
            found[f"{label}[]"] = thing.__getitem__
    return dict(sorted(found.items()))


def right_arguments(name: str, door: Callable[..., Any]) -> dict[str, Callable[[], Any]]:
    """A maker of a right argument for every parameter that has one, by the parameter's name."""
    special = RIGHT_FOR.get(name, {})
    found = {}
    for parameter in _parameters(door):
        if parameter.name in special:
            found[parameter.name] = special[parameter.name]
        elif parameter.name in RIGHT and (required(parameter) or parameter.name in ALWAYS):
            found[parameter.name] = RIGHT[parameter.name]
    return found


def required(parameter: inspect.Parameter) -> bool:
    """Whether a parameter has no default."""
    return parameter.default is inspect.Parameter.empty


def _parameters(door: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        listed = inspect.signature(door).parameters.values()
    except (TypeError, ValueError):
        return []
    plain = (
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
        inspect.Parameter.POSITIONAL_ONLY,
    )
    return [parameter for parameter in listed if parameter.kind in plain]


def call(name: str, arguments: dict[str, Any]) -> str | None:
    """Call a door; None when it returns or refuses as it should, else what went wrong, in a line."""
    door = doors()[name]
    positional = [
        arguments.pop(p.name)
        for p in _parameters(door)
        if p.kind is inspect.Parameter.POSITIONAL_ONLY and p.name in arguments
    ]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = door(*positional, **arguments)
            if inspect.isgenerator(made):
                list(made)
    except MetastableError as error:
        sentence = str(error)
        if "\n" in sentence or len(sentence) > LONGEST_SENTENCE or not sentence:
            return f"{type(error).__name__} of {len(sentence)} characters: {sentence[:80]!r}"
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
    return None


def malformed_call(seed: int) -> str | None:
    """One public name with one to three strange arguments among right ones."""
    chance = random.Random(seed)
    names = list(doors())
    name = names[seed % len(names)]  # every name is tried as often as any other
    makers = right_arguments(name, doors()[name])
    parameters = _parameters(doors()[name])
    if not parameters:
        return None
    count = min(len(parameters), chance.choice((1, 1, 1, 2, 3, len(parameters))))
    strange = {p.name: chance.choice(STRANGE) for p in chance.sample(parameters, count)}
    for parameter in parameters:
        if required(parameter) and parameter.name not in makers:
            strange.setdefault(parameter.name, chance.choice(STRANGE))
    try:
        wrong = call(name, {key: make() for key, make in (makers | strange).items()})
    except MetastableError:
        return None  # a strange value that is not made
    if wrong is None:
        return None
    shown = ", ".join(f"{key}={_brief(make())}" for key, make in strange.items())
    return f"{name}({shown}): {wrong}"


def _brief(value: Any) -> str:
    try:
        return " ".join(repr(value).split())[:60]
    except Exception:
        return type(value).__name__


CASES = {"doors": malformed_call}
CALLS = frozenset({"doors"})
"""Cases that count as calls, not as numerical comparisons."""
