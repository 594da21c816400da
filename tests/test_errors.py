"""Errors are one sentence each, and of the kind that Python programmers expect."""

import pytest

from metastable import errors


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors.InvalidInput, ValueError),
        (errors.NoEnergy, ValueError),
        (errors.NotDefined, ValueError),
        (errors.SolveError, RuntimeError),
        (errors.StorageError, OSError),
        (errors.MissingExtra, ImportError),
    ],
)
def test_every_error_is_ours_and_pythons(kind, builtin):
    assert issubclass(kind, errors.MetastableError) and issubclass(kind, builtin)
    assert str(kind("one sentence")) == "one sentence"


def test_a_missing_package_says_what_to_install():
    assert str(errors.MissingExtra.of("onnx", "encoders")) == (
        "onnx is not installed; run: pip install 'metastable[encoders]'"
    )
