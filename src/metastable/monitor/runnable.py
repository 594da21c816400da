"""Whether this processor can run a model in its precision: some claim bfloat16 and die of the first product."""

from __future__ import annotations

import functools
import subprocess
import sys

import torch
from torch import nn

from metastable.errors import InvalidInput

PRODUCT = "import torch; a = torch.ones(256, 384, dtype=torch.bfloat16); print((a @ a.T).shape)"
"""A product that a virtual machine without the instructions that its flags promise has died of."""
PATIENCE = 120.0
"""Seconds after which a process that says nothing is taken for a slow one and not for a dead one."""


def refuse_what_dies(model: nn.Module) -> None:
    """Raise where a product in the precision of a model ends the process, before it does."""
    found = [p for p in model.parameters() if p.dtype == torch.bfloat16 and p.device.type == "cpu"]
    if found and not bfloat16_runs():
        raise InvalidInput(
            "products in bfloat16 end the process on this processor (illegal instruction): use float32, or start "
            "Python with ONEDNN_MAX_CPU_ISA=AVX512_CORE"
        )


@functools.cache
def bfloat16_runs() -> bool:
    """Whether a product in bfloat16 comes back on this processor; asked of a second process, which may die."""
    try:
        asked = subprocess.run([sys.executable, "-c", PRODUCT], capture_output=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return True
    return asked.returncode >= 0
