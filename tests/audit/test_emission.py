"""Copying and suppressing in closed form, against dense matrices, and the directions of updates."""

from __future__ import annotations

import pytest
import torch

from metastable import sphere
from metastable.audit.emission import UpdateMoments, copying
from tiny_encoders import single_head


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_identity_copies_and_its_negative_suppresses(sign):
    """A = +-1 emits what was attended, or takes it away, whatever the scores: also where tr M says the contrary."""
    for score in (1.0, -1.0):
        eye = torch.eye(4, dtype=torch.float64)
        found = copying(single_head(3 * score * eye, sign * eye), sphere.uniform(20, 4, seed=1))
        assert float(found[0]) == pytest.approx(sign, abs=1e-12)


def test_a_rotation_by_a_right_angle_does_neither():
    turn = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    layer = single_head(torch.eye(2, dtype=torch.float64), turn)
    assert float(copying(layer, sphere.equispaced(9)[:5])[0]) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("family", ["bert", "modernbert", "vit", "mpnet"])
def test_copying_is_that_of_dense_matrices(tiny, family):
    encoder = tiny(family)
    item = (
        torch.randn(encoder.inputs.shape, generator=torch.Generator().manual_seed(3))
        if encoder.inputs.kind == "image"
        else list(range(5, 30))
    )
    layer, points = encoder.layers[1], encoder.points([item])[0][1]
    attention = layer.attention(points)
    for h, head in enumerate(layer.heads):
        attended = layer.norm.centre(attention[h] @ points)
        emitted = layer.norm.centre(attended @ head.V.T)
        expected = torch.nn.functional.cosine_similarity(attended, emitted, dim=1).mean()
        assert float(copying(layer, points)[h]) == pytest.approx(float(expected), abs=1e-9)


def test_directions_are_a_participation_ratio_over_all_texts():
    generator = torch.Generator().manual_seed(5)
    rows = torch.randn(40, 6, generator=generator, dtype=torch.float64) + 3.0
    moments = UpdateMoments(6)
    for part in rows.split(15):
        moments.add(part)
    values = torch.linalg.eigvalsh(torch.cov(rows.T, correction=0))
    assert moments.directions == pytest.approx(float(values.sum() ** 2 / values.square().sum()), rel=1e-9)
    one = UpdateMoments(6)
    one.add(rows[:1])
    assert one.directions == pytest.approx(1.0)


def test_the_error_of_directions_is_that_of_leaving_out_texts():
    """Against the spread over many samples of 40 texts, of which texts (not tokens) are independent."""
    found, errors = [], []
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        moments = UpdateMoments(6)
        for _ in range(40):
            topic = torch.randn(6, generator=generator, dtype=torch.float64)
            moments.add(topic + 0.5 * torch.randn(10, 6, generator=generator, dtype=torch.float64))
        found.append(moments.directions)
        errors.append(moments.error)
    spread, told = torch.tensor(found).std(), torch.tensor(errors).square().mean().sqrt()
    assert 0.7 < float(told / spread) < 1.4  # 60 samples tell a spread to 9%, errors of 3 degrees of freedom to 10%
    one = UpdateMoments(6)
    one.add(torch.randn(5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    assert one.error == 0.0
