"""Node solver on the circle: the flow map theta_t on panels of labels (`panel_run`), one line that closes.

d theta/dt = v[rho_t](theta),  rho_t = theta_t # rho_0
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from metastable.flows.flow import Flow
from metastable.meanfield.circle import CircleLaw, angular_velocity, plain_attention
from metastable.meanfield.groups import Groups
from metastable.meanfield.panel_run import Accuracy, FlowMap, PanelRun
from metastable.meanfield.panels import Panels
from metastable.meanfield.piecewise import Array
from metastable.meanfield.progress import Tell


def flow_map(
    flow: Flow,
    law: CircleLaw,
    times: Array,
    kappa: float,
    accuracy: Accuracy,
    max_nodes: int,
    max_steps: int = 20000,
    tell: Tell | None = None,
) -> FlowMap:
    """The flow map at increasing times, by the order-8 method of Dormand and Prince; panels adapt between steps."""
    return _CircleRun(flow, law, accuracy, kappa, max_nodes).through(times, max_steps, tell)


class _CircleRun(PanelRun):
    """Angles; panels that the flow has pressed together share their field (`groups`)."""

    def __init__(self, flow: Flow, law: CircleLaw, accuracy: Accuracy, kappa: float, max_nodes: int) -> None:
        self.flow, self.law = flow, law
        panels = Panels.of(law)
        super().__init__(accuracy, kappa, max_nodes, panels, panels.start(law))

    def velocity(self, t: float, theta: Array) -> Array:
        return self.groups.velocity(t, theta)

    def masses(self, panels: Panels) -> Array:
        return panels.mass(self.law)

    def extent(self, theta: Array) -> Array:
        return np.abs(theta[:, -1] - theta[:, 0])

    def arranged(self) -> None:
        kappa = self.kappa if plain_attention(self.flow) else math.inf
        self.groups = Groups(partial(angular_velocity, self.flow), self.theta, self.mass, kappa)
