"""Integration on the sphere: `solve`, its steppers and observers, events, and `Path` with its storage.

The room is callable: `ms.solve(flow, ...)` is `metastable.solve.solve(flow, ...)`, whichever was imported first.
"""

from metastable.callable_room import make_callable
from metastable.solve.events import Crossing, Event
from metastable.solve.extend import load
from metastable.solve.fixed_step import FixedStep
from metastable.solve.gradient import Gradient, gradient
from metastable.solve.methods import METHODS, register_stepper
from metastable.solve.observer import Observer, Run
from metastable.solve.path import Path
from metastable.solve.problem import Problem, State, Step
from metastable.solve.solve import solve
from metastable.solve.stepper import Stepper

__all__ = [
    "METHODS",
    "Crossing",
    "Event",
    "FixedStep",
    "Gradient",
    "Observer",
    "Path",
    "Problem",
    "Run",
    "State",
    "Step",
    "Stepper",
    "gradient",
    "load",
    "register_stepper",
    "solve",
]

make_callable(__name__, solve)
