"""How alike tokens are, point by point: cosines in full, the spread over texts, and the course that is told."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from metastable.audit.depth import course, depth_points, mean_cosines, similarity


def test_mean_cosines_are_those_of_all_pairs():
    states = torch.randn(3, 7, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = []
    for rows in states.numpy():
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        table = unit @ unit.T
        expected.append(table[~np.eye(7, dtype=bool)].mean())
    assert mean_cosines(states) == pytest.approx(expected, abs=1e-12)
    assert mean_cosines(states[:, :1]) == [1.0] * 3
    same = torch.ones(1, 4, 5, dtype=torch.float64)
    cosines, ranks = similarity(same)
    assert cosines == pytest.approx([1.0]) and ranks == pytest.approx([1.0])


def points(*curves):
    return depth_points(curves, [[1.0] * len(curve) for curve in curves])


def test_growth_is_paired_by_text():
    """Texts differ much from each other and grow by the same: the growth is known far better than the level."""
    found = points([0.1, 0.3], [0.5, 0.7], [0.8, 1.0])
    assert found[1].growth == pytest.approx(0.2) and found[1].growth_error == pytest.approx(0.0, abs=1e-12)
    assert found[1].mean_cosine_error == pytest.approx(np.std([0.3, 0.7, 1.0], ddof=1) / np.sqrt(3))


def test_the_output_counts():
    """Rises up to the last layer's input and is back at the output: not called a growth."""
    assert course(points([0.3, 0.5, 0.6, 0.31], [0.3, 0.52, 0.58, 0.3])) == ("same", 2)
    assert course(points([0.3, 0.4, 0.5, 0.6], [0.3, 0.41, 0.5, 0.61])) == ("rise", None)
    assert course(points([0.6, 0.2, 0.4], [0.62, 0.2, 0.4])) == ("fall", 1)
    assert course(points([0.3, 0.33])) == ("same", None)


def test_a_growth_within_its_error_cannot_be_told():
    assert course(points([0.3, 0.1], [0.3, 0.9], [0.3, 0.4])) == ("open", None)
    assert course(points([0.3, 0.34], [0.3, 0.37], [0.3, 0.35])) == ("open", None)  # 0.053, asked 0.05
    assert course(points([0.3, 0.31], [0.3, 0.31], [0.3, 0.30])) == ("same", None)
