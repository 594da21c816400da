"""The house as CONTRIBUTING shows it: the order of rooms, no cycle inside one, a test file for every module."""

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "metastable"
TESTS = Path(__file__).parent

ROOMS = (
    "_version", "errors", "arguments", "callable_room", "threads", "rowwise", "sphere", "measure", "weights",
    "readers", "spectral", "attention", "flows", "solve", "meanfield", "observe", "transport", "theory", "drawing",
    "papers", "encoders", "audit", "monitor", "cli",
)  # fmt: skip
"""In import order: a room imports only from rooms before it."""


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name, `metastable` itself excepted."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name:
            found[name] = path
    return found


MODULES = modules()


@cache
def imported(name: str) -> frozenset[str]:
    """The modules of the package that a module imports anywhere: at its top, in functions, for type checkers."""
    path, found = MODULES[name], set()
    for node in ast.walk(ast.parse(path.read_text())):
        wanted: list[str] = []
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written out, not relative"
            wanted = [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
        inside = [w.removeprefix("metastable.") for w in wanted if w.startswith("metastable.")]
        known = [w for w in inside if w in MODULES]
        assert known or not inside, f"{path}: {inside} is a name of the package; import it from its room"
        # `from metastable.a import b` is module a.b where that exists, else a name in a.
        found |= {w for w in known if not any(other.startswith(f"{w}.") for other in known)}
    return frozenset(found - {name})


def room(name: str) -> str:
    return name.split(".")[0]


def test_every_room_has_its_place() -> None:
    assert {room(name) for name in MODULES} == set(ROOMS)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_room_imports_only_from_rooms_before_it(name: str) -> None:
    later = {other for other in imported(name) if ROOMS.index(room(other)) > ROOMS.index(room(name))}
    assert not later, f"{name} imports from later rooms: {sorted(later)}"


@pytest.mark.parametrize("place", ROOMS)
def test_no_cycle_inside_a_room(place: str) -> None:
    graph = {
        name: {other for other in imported(name) if room(other) == place} for name in MODULES if room(name) == place
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"modules import each other: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize("place", ["direct", "circle", "sphere", "gpu"])
def test_a_sub_room_of_attention_has_one_door(place: str) -> None:
    inside = f"attention.{place}"
    through_the_window = {
        f"{name} -> {other}"
        for name in MODULES
        if name != inside and not name.startswith(f"{inside}.")
        for other in imported(name)
        if other.startswith(f"{inside}.")
    }
    assert not through_the_window


def test_tests_mirror_files() -> None:
    """`a/b.py` is tested by `tests/a/test_b.py`, and every test file in a room has such a module."""
    expected = {
        path.parent.relative_to(PACKAGE) / f"test_{path.name}"
        for path in MODULES.values()
        if path.name not in ("__init__.py", "_version.py")
    }
    there = {path.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    whole = {Path("test_rooms.py"), Path("test_shapes.py"), Path("test_readme.py"), Path("test_docs.py")}
    whole |= {Path("test_package.py"), Path("test_fuzz.py")}
    assert sorted(map(str, expected - there)) == []
    assert sorted(map(str, there - expected - whole)) == []
