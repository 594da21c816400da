from __future__ import annotations

import pytest
import torch

from metastable.audit.heads import audit_weights
from metastable.audit.loop import FRAMES, audit_loops, random_tokens, step
from metastable.audit.spectra import Factors


def test_a_step_is_the_flow_of_the_layer(tiny):
    layer = tiny("bert").layers[1]
    points = random_tokens(layer, 12)
    mass = torch.full((12,), 1 / 12, dtype=torch.float64)
    added = step(layer, Factors.of(layer), points)
    tangent = added - (added * points).sum(dim=1, keepdim=True) * points
    torch.testing.assert_close(tangent, layer.flow().velocity(0.0, points, mass), rtol=0, atol=1e-9)


def test_random_tokens_are_centred_and_seeded(tiny):
    layer = tiny("bert").layers[0]
    points = random_tokens(layer, 7, seed=3)
    torch.testing.assert_close(points, random_tokens(layer, 7, seed=3))
    assert float(points.sum(dim=1).abs().max()) < 1e-12
    torch.testing.assert_close(points.norm(dim=1), torch.ones(7, dtype=torch.float64))


def test_every_forecast_stands_beside_its_control(tiny):
    encoder = tiny("bert")
    for loop in audit_loops(encoder, audit_weights(encoder), steps=30):
        assert 0 <= loop.terminal_wrong_layer <= 1 and 0 <= loop.early_rolled_heads <= 1
        assert 0 <= loop.terminal_energy <= 1 + 1e-12
        passed = loop.early_energy >= max(0.25, 2 * loop.early_rolled_heads)
        assert loop.early_holds == (passed == loop.forecast_early)
        assert len(loop.curve_steps) == len(loop.curve_early) == len(loop.curve_terminal)
        assert loop.curve_steps[-1] == loop.steps


def test_trajectories_follow_the_tokens(tiny):
    """The first frame is the start, the last the end of the run, all of them inside the unit circle."""
    encoder = tiny("bert")
    for loop in audit_loops(encoder, audit_weights(encoder), steps=60):
        assert loop.trajectory_steps[0] == 0 and loop.trajectory_steps[-1] == loop.steps
        for token in loop.trajectories:
            assert len(token) == len(loop.trajectory_steps) <= FRAMES + 1
            assert all(x * x + y * y <= 1 + 1e-3 for x, y in token)


def test_collapse_onto_the_dominant_axis_of_the_values():
    """One head, B = 0: s <- s + A mean(s) is a power iteration, which ends on the top eigenvector of A."""
    from tiny_encoders import single_head

    values = torch.diag(torch.tensor([0.9, 0.3, 0.1, 0.05, *([0.01] * 16)], dtype=torch.float64))
    layer = single_head(torch.zeros(20, 20, dtype=torch.float64), values)
    points = random_tokens(layer, 20, seed=1)
    factors = Factors.of(layer)
    for _ in range(300):
        points = points + step(layer, factors, points)
        points = points / points.norm(dim=1, keepdim=True)
    assert float(points[:, 0].abs().min()) > 0.999


@pytest.mark.slow
def test_marks_of_the_looped_layers(minilm):
    """all-MiniLM-L6-v2, random tokens: five layers end in sum A, layer 1 in two clusters, layer 2 passes M0."""
    loops = audit_loops(minilm, audit_weights(minilm))
    for l in (0, 2, 3, 4, 5):
        assert loops[l].terminal_energy >= 0.95
        assert loops[l].terminal_wrong_layer <= 0.12
    assert loops[1].antipodal and loops[1].clusters == 2 and loops[1].early_energy_end >= 0.95
    assert loops[2].early_energy >= 0.25 and loops[2].early_energy_end < 0.1
    assert [loop.forecast_early for loop in loops] == [False, True, True, False, False, False]
    assert all(loop.early_holds for loop in loops)
