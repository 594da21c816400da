"""The package as a user meets it: its public names, what they load, and nothing that leaks."""

import dataclasses
import importlib
import inspect
import json
import subprocess
import sys
import textwrap

import pytest

import metastable as ms

HEAVY = {
    "IPython", "jinja2", "joblib", "matplotlib", "onnx", "ot", "pandas", "plotly", "pydantic", "safetensors",
    "scipy.integrate", "scipy.optimize", "scipy.stats", "transformers", "xarray", "zarr",
}  # fmt: skip
"""What takes long to import and what a plain simulation does not need."""


def loaded_after(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after the code."""
    ending = "\nimport json as _json, sys as _sys\nprint(_json.dumps(sorted(_sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code) + ending], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_every_public_name_resolves() -> None:
    for name in ms.__all__:
        assert getattr(ms, name) is not None
    assert dir(ms) == sorted(ms.__all__)


@pytest.mark.parametrize("name", ["Any", "import_module", "TYPE_CHECKING", "annotations"])
def test_imports_of_our_own_do_not_leak(name: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
        getattr(ms, name)


@pytest.mark.parametrize("room", ["solve", "audit", "attention.hardmax"])
def test_a_callable_room_is_also_a_package(room: str) -> None:
    """`ms.solve(...)` and `import metastable.solve.events` work in one process, in either order."""
    inner = {"solve": "events", "audit": "findings", "attention.hardmax": "tiles"}[room]
    for code in (
        f"import metastable as ms; ms.{room}; import metastable.{room}.{inner} as inner; inner.__name__",
        f"import metastable.{room}.{inner}; import metastable as ms; ms.{room}.{inner}; assert callable(ms.{room})",
    ):
        assert f"metastable.{room}.{inner}" in loaded_after(code)


ROOMS = """attention audit drawing encoders flows meanfield measure monitor observe papers solve spectral theory
transport weights"""


def public_classes() -> list[type]:
    rooms = [importlib.import_module(f"metastable.{room}") for room in ROOMS.split()]
    named = (getattr(room, name) for room in rooms for name in getattr(room, "__all__", vars(room)))
    ours = {one for one in named if inspect.isclass(one) and one.__module__.startswith("metastable.")}
    return sorted((one for one in ours if not issubclass(one, Exception)), key=lambda one: one.__name__)


@pytest.mark.parametrize("kind", public_classes(), ids=lambda kind: kind.__name__)
def test_every_public_object_says_what_it_is_in_a_line(kind: type) -> None:
    """Its own words, or those of `OneLine`: what dataclass writes by itself prints whole arrays."""
    words = kind.__repr__
    assert words is not object.__repr__
    if dataclasses.is_dataclass(kind) and "__repr__" in vars(kind) and hasattr(words, "__wrapped__"):
        fields = dataclasses.fields(kind)  # written by dataclass: only for a handful of scalars and words
        assert all(str(field.type) in ("float", "int", "bool", "str") for field in fields), kind


def test_a_line_is_short_whatever_the_fields() -> None:
    w = ms.AttentionWeights(V=[[2.0, 0.0], [0.0, 1.0]], B=[[1.0, 0.0], [0.0, 1.0]])
    series = ms.drawing.Series(list(range(1000)), list(range(1000)), "a line\nof two")
    for one in (ms.theory.rates(w), series, ms.drawing.Lines("t", "x", "y", [series])):
        assert len(repr(one)) < 200 and "\n" not in repr(one) and repr(one).startswith(type(one).__name__)


def test_import_loads_nothing() -> None:
    loaded = loaded_after("import metastable")
    assert {name for name in loaded if name.startswith("metastable.")} == {"metastable._version"}
    assert not loaded & {"torch", "numpy", "numba", *HEAVY}


def test_a_simulation_loads_what_it_needs() -> None:
    loaded = loaded_after(
        """
        import metastable as ms
        w = ms.AttentionWeights(V=[[1.0, 0.0], [0.0, 2.0]], B=[[1.0, 0.0], [0.0, 1.0]])
        path = ms.solve(ms.SelfAttention(w, beta=1.0), ms.sphere.uniform(5, 2), t=0.1)
        ms.observe.order_parameter(path.end)
        """
    )
    assert not loaded & HEAVY


@pytest.mark.parametrize("command", ["", "demo", "simulate", "forecast", "verify", "audit", "monitor", "bench"])
def test_help_needs_no_array_library(command: str) -> None:
    loaded = loaded_after(
        f"""
        import sys
        sys.argv = {["metastable", *([command] if command else []), "--help"]!r}
        try:
            from metastable.cli import main
            main()
        except SystemExit as leaving:
            assert not leaving.code
        """
    )
    # typer itself loads pydantic where it finds it.
    assert not loaded & ({"torch", "numpy", "numba", "scipy", *HEAVY} - {"pydantic"})


def test_an_unknown_name_is_told() -> None:
    with pytest.raises(AttributeError, match="module 'metastable' has no attribute 'solv'"):
        ms.solv  # noqa: B018


def test_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    import ast
    import re
    import tomllib
    from pathlib import Path

    root = Path(__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = {name: names for name, names in project["optional-dependencies"].items() if name != "dev"}
    declared = {
        re.split(r"[<>=!~\[; ]", line)[0].lower().replace("-", "_")
        for lines in (project["dependencies"], *extras.values())
        for line in lines
    }
    found = set()
    for path in (root / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            found |= {name.split(".")[0] for name in names}
    # Triton comes with the CUDA builds of torch and is never asked for; typing_extensions is for type checkers, who
    # bring it; POT is imported as ot, opentelemetry-api as opentelemetry.
    found -= {*sys.stdlib_module_names, "metastable", "triton", "typing_extensions"}
    called = {"ot": "pot", "opentelemetry": "opentelemetry_api"}
    assert {called.get(name, name) for name in found} == declared
