from __future__ import annotations

import numpy as np
import pytest

from metastable.audit.spread import mean, standard_error


def test_mean_and_standard_error_are_numpys():
    values = [0.3, 1.2, -0.4, 2.0, 0.1]
    assert mean(values) == pytest.approx(np.mean(values))
    assert standard_error(values) == pytest.approx(np.std(values, ddof=1) / np.sqrt(5))
    assert standard_error([3.0]) == 0.0
