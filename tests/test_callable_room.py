"""A room that is also a function, in whatever order things are imported."""

import copy
import importlib
import inspect
import pickle
import sys
import types

from metastable.callable_room import make_callable


def test_a_module_becomes_its_function():
    room = types.ModuleType("a_room", "The room.")
    room.inside = 3
    sys.modules["a_room"] = room
    try:
        make_callable("a_room", lambda a, *, b=2: (a, b))
        assert room(1) == (1, 2) and room(1, b=5) == (1, 5)
        assert str(inspect.signature(room)) == "(a, *, b=2)"
        assert (room.inside, room.__doc__, importlib.import_module("a_room")) == (3, "The room.", room)
    finally:
        del sys.modules["a_room"]


def test_the_rooms_of_this_package():
    for name, function in (("solve", "solve"), ("audit", "audit")):
        room = importlib.import_module(f"metastable.{name}")
        assert inspect.signature(room) == inspect.signature(getattr(room, function))
        assert isinstance(room, types.ModuleType)
    assert importlib.import_module("metastable.solve.events").Event is sys.modules["metastable.solve"].Event


def test_a_room_survives_pickling_and_copying():
    """Pools of processes pickle the function that they run."""
    for name in ("solve", "audit", "attention.hardmax"):
        room = importlib.import_module(f"metastable.{name}")
        assert pickle.loads(pickle.dumps(room)) is room and copy.deepcopy(room) is room
