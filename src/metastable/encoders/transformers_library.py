"""The transformers package: imported when it is first needed, and kept quiet."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from metastable.errors import MissingExtra


def library() -> Any:
    """The transformers package, or a sentence that says how to install it."""
    try:
        import transformers
    except ImportError as error:
        raise MissingExtra.of("transformers", "encoders") from error
    return transformers


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars, no loading report and no warnings of transformers; all settings are put back."""
    transformers = library()
    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
