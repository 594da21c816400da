"""`ms.audit` is the function and the room at once, in whatever order things are imported."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "order",
    [
        "import metastable as ms",
        "import metastable as ms; import metastable.audit",
        "from metastable.audit import audit; import metastable as ms",
    ],
)
def test_the_room_is_callable(order):
    check = "assert callable(ms.audit) and callable(ms.audit.audit)"
    subprocess.run([sys.executable, "-c", f"{order}; {check}"], check=True)
