"""The live page: the service's latest scores, asked for every second."""

from __future__ import annotations

import math
from typing import Any

from metastable.drawing.shell import compose

ROOM = "metastable.monitor"


def live_page(health: dict[str, Any], kept: int) -> str:
    """The page of a running service, with the last `kept` texts; its script draws them."""
    return compose(ROOM, "live.html.j2", h=health, kept=kept, level=-math.log(health["rate"]))
