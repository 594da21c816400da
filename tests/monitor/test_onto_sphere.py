from dataclasses import replace

import torch

from metastable.monitor.onto_sphere import OntoSphere


def test_points_behind_a_norm_are_those_in_front_of_it(encoder) -> None:
    """LayerNorm undone: s of any tokens is found again from what the norm makes of them."""
    site = encoder.sites[1]
    before = torch.randn(2, 5, encoder.d, generator=torch.Generator().manual_seed(0))
    onto = OntoSphere.before(site, torch.device("cpu"))
    found = torch.empty(2, 5, encoder.d)
    with torch.no_grad():
        onto(site.norm(before), found)
    expected = torch.stack([site.layer.norm.points(row) for row in before])
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=0)


def test_a_large_eps_is_made_up_for(encoder) -> None:
    """Where the norm leaves points shorter than one, their length is computed."""
    site = encoder.sites[1]
    assert OntoSphere.before(site, torch.device("cpu")).exact
    wide = replace(site.layer, norm=replace(site.layer.norm, eps=1e-3))
    onto = OntoSphere.before(replace(site, layer=wide), torch.device("cpu"))
    out = torch.empty(1, 4, encoder.d)
    onto(torch.randn(1, 4, encoder.d), out)
    torch.testing.assert_close(torch.linalg.vector_norm(out, dim=2), torch.ones(1, 4))


def test_a_gain_of_zero_is_not_divided_by(encoder) -> None:
    site = encoder.sites[1]
    gain = site.layer.norm.gain.clone()
    gain[0] = 0.0
    layer = replace(site.layer, norm=replace(site.layer.norm, gain=gain))
    onto = OntoSphere.before(replace(site, layer=layer), torch.device("cpu"))
    out = torch.empty(1, 3, encoder.d)
    onto(torch.randn(1, 3, encoder.d), out)
    assert torch.isfinite(out).all()
