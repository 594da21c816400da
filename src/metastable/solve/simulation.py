"""`Simulation`: a run as a config, from a TOML file or from Python, checked once; `.build()` and `.run()` it."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import pydantic
import torch
from torch import Tensor

from metastable import sphere
from metastable.arguments import place, shown
from metastable.errors import InvalidInput, StorageError
from metastable.flows import (
    EuclideanAttention,
    Flow,
    Hardmax,
    SelfAttention,
    UnnormalizedAttention,
    ZeroTemperature,
)
from metastable.measure import Measure
from metastable.readers import lattice, parse_matrix, weights_from
from metastable.solve.cost import Cost, estimate
from metastable.solve.observer import Observer
from metastable.solve.path import Path
from metastable.solve.solve import solve
from metastable.solve.storage import writing
from metastable.weights import AttentionWeights

FlowKind = Literal["self-attention", "unnormalized", "zero-temperature", "hardmax", "euclidean"]
Law = Literal["uniform", "equispaced", "fibonacci", "von-mises-fisher", "file"]
Matrix = str | list[list[float]]


class _Section(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")


class Weights(_Section):
    """The matrices: `diag(2,1)`, `I`, `2 I`, nested lists, or a .npy file."""

    V: Matrix = "diag(1, 2)"
    B: Matrix = "diag(4, 1)"


class FlowChoice(_Section):
    """Which flow, and its inverse temperature; `rtol` of its attention: auto (a share of that of the run), none
    (all digits), or a number."""

    kind: FlowKind = "self-attention"
    beta: float = 100.0
    kernel: str = "auto"
    rtol: float | Literal["auto", "none"] = "auto"


class Tokens(_Section):
    """The initial tokens."""

    law: Law = "uniform"
    n: Annotated[int, pydantic.Field(ge=1, le=2**40)] = 600
    mean: list[float] | None = None
    kappa: float = 10.0
    file: str | None = None
    seed: Annotated[int, pydantic.Field(ge=-(2**63), lt=2**63)] = 0


class Integration(_Section):
    """How the flow is integrated and which times are kept."""

    t: float = 22.0
    frames: Annotated[int, pydantic.Field(ge=2, le=2**24)] = 45
    method: str = "auto"
    rtol: float = 1e-8
    atol: float = 1e-10
    step: float | None = None
    dtype: Literal["float64", "float32"] = "float64"
    device: str = "cpu"


class Output(_Section):
    """Where the path and the figure go; `overwrite` is a flag of one command and not kept in files."""

    out: str = "metastable-out/simulate"
    overwrite: bool = False


class Simulation(_Section):
    """A whole run; the defaults are the three phases of a small run on the circle.

    The sections are those of the file: weights, flow, tokens, run, output (in Python the section `run` is called
    `integration`, because `run()` is what one does with a simulation).

    >>> flow, rho = Simulation(flow={"beta": 4.0}, tokens={"n": 5}).build()
    >>> flow.describe()["beta"], rho.n
    (4.0, 5)
    """

    model_config = pydantic.ConfigDict(populate_by_name=True)

    weights: Weights = Weights()
    flow: FlowChoice = FlowChoice()
    tokens: Tokens = Tokens()
    integration: Annotated[Integration, pydantic.Field(alias="run")] = Integration()
    output: Output = Output()

    def __init__(self, **sections: Any) -> None:
        """The sections as keywords, each a dict; the first mistake in them is told in one sentence."""
        try:
            super().__init__(**sections)
        except pydantic.ValidationError as error:
            raise InvalidInput(_sentence(error)) from None

    def build(self) -> tuple[Flow, Measure]:
        """The flow and the initial measure."""
        w = weights_from(self.weights.V, self.weights.B)
        return self._flow(w), self._tokens(w.d)

    def run(self, progress: Any = False, observers: Sequence[Observer] = ()) -> Path:
        """Solve; the path streams to OUT/path.zarr with checkpoints, and the configuration goes beside it."""
        flow, rho = self.build()
        folder, how = self.output.out, self.integration
        with writing(folder):
            os.makedirs(folder, exist_ok=True)
        path = solve(
            flow,
            rho,
            how.t,
            times=how.frames,
            method=how.method,
            rtol=how.rtol,
            atol=how.atol,
            step=how.step,
            progress=progress,
            observers=observers,
            out=os.path.join(folder, "path.zarr"),
            resume=not self.output.overwrite,
            seed=self.tokens.seed,
        )
        with writing(folder), open(os.path.join(folder, "config.toml"), "w") as file:
            file.write(self.to_toml())
        return path

    def cost(self) -> Cost | None:
        """An estimate of what the run will cost; None if that is little, or not known."""
        how = self.integration
        return estimate(*self.build(), how.t, how.rtol, how.atol, how.method, how.step)

    def __repr__(self) -> str:
        beta = "" if self.flow.kind in ("zero-temperature", "hardmax") else f" at beta = {self.flow.beta:g}"
        where = self.tokens.file if self.tokens.law == "file" else f"{self.tokens.n} {self.tokens.law} tokens"
        return f"Simulation({self.flow.kind}{beta}, {where}, t = {self.integration.t:g}, out = {self.output.out!r})"

    __str__ = __repr__

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """The complete configuration as plain data, under the names of the file."""
        return self.model_dump(by_alias=True)

    def _flow(self, w: AttentionWeights) -> Flow:
        if self.flow.kind == "zero-temperature":
            return ZeroTemperature(w)
        if self.flow.kind == "hardmax":
            return Hardmax(w)
        softmax: dict[str, Callable[..., Flow]] = {
            "self-attention": SelfAttention,
            "unnormalized": UnnormalizedAttention,
            "euclidean": EuclideanAttention,
        }
        rtol = None if self.flow.rtol == "none" else self.flow.rtol
        return softmax[self.flow.kind](w, self.flow.beta, kernel=self.flow.kernel, rtol=rtol)

    def _tokens(self, d: int) -> Measure:
        t = self.tokens
        points: Tensor
        if t.law == "file":
            if t.file is None:
                raise InvalidInput("tokens.law = 'file' needs tokens.file, an array of shape (n, d)")
            points = parse_matrix(t.file, name="tokens.file")
        elif t.law == "von-mises-fisher":
            points = sphere.von_mises_fisher(t.n, t.mean or [1.0] + [0.0] * (d - 1), t.kappa, seed=t.seed)
        elif t.law == "uniform":
            points = sphere.uniform(t.n, d, seed=t.seed)
        else:
            points = lattice(t.law, t.n, d)
        dtype, device = getattr(torch, self.integration.dtype), self.integration.device
        measure = Measure(points, sphere=self.flow.kind != "euclidean", dtype=dtype)
        if device == "cpu":
            return measure
        try:
            return measure.to(device=torch.device(device))
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise InvalidInput(f"device {device!r} cannot be used: {reason}") from None

    def to_toml(self) -> str:
        """The complete configuration as TOML; entries that are not set are shown as comments."""
        lines: list[str] = []
        for section, values in self.to_dict().items():
            lines.append(f"[{section}]")
            # A file that says overwrite would replace its own result instead of opening it.
            kept = {k: v for k, v in values.items() if k != "overwrite"}
            lines += [f"# {k} =" if v is None else f"{k} = {_toml(v)}" for k, v in kept.items()]
            lines.append("")
        return "\n".join(lines)


def read_config(location: str | None, overrides: dict[str, dict[str, Any]]) -> Simulation:
    """The configuration of a TOML file (or the defaults), with the given flags on top."""
    content: dict[str, Any] = {}
    if location is not None:
        location = place(location, "the configuration file")
        if not os.path.exists(location):
            raise StorageError(f"there is no configuration file {location!r}")
        try:
            with open(location, "rb") as file:
                content = tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
            raise StorageError(f"{location!r} is not a TOML file: {error}") from error
    for section, values in overrides.items():
        given = {k: v for k, v in values.items() if v is not None}
        if given:
            existing = content.setdefault(section, {})
            if not isinstance(existing, dict):
                raise InvalidInput(f"[{section}] must be a section of the configuration, got {shown(existing)}")
            existing.update(given)
    return Simulation(**content)


def _sentence(error: pydantic.ValidationError) -> str:
    """The first complaint of pydantic, as one of ours."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part != "str" and not str(part).startswith("list["))
    if first["type"] == "extra_forbidden":
        known: dict[str, Any] = Simulation().to_dict()
        known = known[str(first["loc"][0])] if len(first["loc"]) > 1 else known
        return f"{where} is not a known entry; choose from {', '.join(known)}"
    return f"{where} must be {first['msg'].removeprefix('Input should be ')}, got {shown(first['input'])}"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, list):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    return repr(value)
