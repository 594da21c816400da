"""The transformers package: asked for when it is needed, and its settings put back."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest

from metastable.encoders import load
from metastable.encoders.transformers_library import library, quiet
from metastable.errors import MissingExtra


def test_missing_transformers_is_a_sentence(bert_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"pip install 'metastable\[encoders\]'"):
        load(bert_folder)


def test_settings_are_put_back():
    logging = library().utils.logging
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_info()
    try:
        with quiet():
            assert logging.get_verbosity() == logging.ERROR and not logging.is_progress_bar_enabled()
        assert logging.get_verbosity() == logging.INFO and logging.is_progress_bar_enabled() == before[1]
    finally:
        logging.set_verbosity(before[0])


def test_the_room_opens_without_the_extra():
    heavy = "transformers", "onnx", "safetensors", "huggingface_hub"
    check = f"import sys, metastable.encoders; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_warnings_are_kept_inside(recwarn):
    with quiet():
        warnings.warn("of no use to a user", FutureWarning, stacklevel=1)
    assert not recwarn.list
