import numpy as np
import torch

from metastable import SelfAttention, solve
from metastable.papers import Setting
from metastable.papers.spectral_selection.measuring import ends, rests, starts, words
from metastable.theory import equilibrium_residual, selection_weights


def test_starts_of_other_streams_and_seeds_share_nothing():
    a, b, c = starts(Setting(), 3, 4, 3, 1), starts(Setting(), 3, 4, 3, 2), starts(Setting(seed=1), 3, 4, 3, 1)
    assert a.shape == (3, 4, 3) and not torch.equal(a, b) and not torch.equal(a, c)
    assert torch.allclose(a.norm(dim=2), torch.ones(3, 4, dtype=torch.float64))


def test_ends_are_those_of_each_system_alone():
    spectrum, betas, points = (2.0, -1.0, 0.5), (0.3, 4.0), starts(Setting(), 3, 4, 3, 1)
    last = ends(spectrum, betas, points, 1.5, rtol=1e-9)
    assert last.shape == (2, 3, 4, 3)
    for i, beta in enumerate(betas):
        flow = SelfAttention(selection_weights(np.diag(spectrum)), beta)
        for s in range(3):
            alone = solve(flow, points[s], t=1.5, rtol=1e-9).end.points
            assert torch.allclose(last[i, s], alone, atol=1e-7)


def test_systems_that_still_move_are_followed_until_they_rest():
    spectrum, betas, points = (2.0, -1.0, 0.5), (0.3, 1.0), starts(Setting(), 3, 4, 3, 1)
    early = ends(spectrum, betas, points, 4.0)
    last, left = rests(spectrum, betas, points, 4.0, 1e-5)
    found = [
        equilibrium_residual(np.diag(spectrum), b, x) for b, many in zip(betas, last, strict=True) for x in many
    ]
    assert left.flatten().tolist() == found and left.max() < 1e-5
    moved = (last - early).abs().amax((2, 3))
    still = [
        equilibrium_residual(np.diag(spectrum), b, x) for b, many in zip(betas, early, strict=True) for x in many
    ]
    assert ((moved == 0) == (torch.tensor(still).reshape(2, 3) < 1e-5)).all() and (moved > 0).any()


def test_eigenvalues_in_words():
    assert words((3.0, -0.25)) == "3, -0.25"
