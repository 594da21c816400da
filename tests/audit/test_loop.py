from __future__ import annotations

import itertools

import pytest
import torch

from metastable.audit.heads import audit_weights
from metastable.audit.loop import FRAMES, SETTLED, audit_loops, looped, random_tokens, spread
from tiny_encoders import single_head


def test_a_pass_is_attention_residual_and_norm(tiny):
    """s <- (s + C sum_h A_h m_h)/|.| with the layer's own attention, pass after pass, to the digit."""
    layer = tiny("bert").layers[1]
    points = random_tokens(layer, 12)
    frames, _ = looped(layer, points, 4)
    for frame in frames:
        torch.testing.assert_close(frame, points, rtol=0, atol=1e-12)
        points = points + layer.norm.centre(layer.update(points))
        points = points / points.norm(dim=1, keepdim=True)


def power_iteration():
    """One head, B = 0: s <- s + A mean(s) is a power iteration, which ends on the top eigenvector of A."""
    values = torch.diag(torch.tensor([0.9, 0.3, 0.1, 0.05, *([0.01] * 16)], dtype=torch.float64))
    return single_head(torch.zeros(20, 20, dtype=torch.float64), values)


def test_the_loop_ends_when_nothing_moves():
    layer = power_iteration()
    start = random_tokens(layer, 20, seed=1)
    frames, settled = looped(layer, start, 400)
    moved = [float((b - a).abs().max()) for a, b in itertools.pairwise(frames)]
    assert settled and len(frames) < 401
    assert moved[-1] < SETTLED <= min(moved[:-1])
    short, settled = looped(layer, start, len(frames) - 2)
    assert not settled and len(short) == len(frames) - 1


def test_tokens_of_a_text_are_spread_over_it(tiny):
    points = torch.arange(1.0, 12.0, dtype=torch.float64)[:, None] * torch.ones(11, 4, dtype=torch.float64)
    points[:, 0] = torch.arange(11)
    chosen = spread(points, 3)
    expected = points[[0, 5, 10]]
    torch.testing.assert_close(chosen, expected / expected.norm(dim=1, keepdim=True))
    assert len(spread(points, 50)) == 11


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
    layer = power_iteration()
    frames, _ = looped(layer, random_tokens(layer, 20, seed=1), 300)
    assert float(frames[-1][:, 0].abs().min()) > 0.999


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
