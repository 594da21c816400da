"""Which processors multiply matrices with narrower vectors than our own loops have."""

import pytest

from metastable.attention.direct.processor import libraries_are_wide


@pytest.mark.parametrize(
    ("name", "wide", "expected"),
    [("znver5", True, False), ("znver4", True, False), ("znver3", False, True), ("icelake-server", True, True)],
)
def test_the_name_decides(name, wide, expected):
    assert libraries_are_wide(name, wide) is expected
