"""What every head does on every text: averages are those of the text audit."""

from __future__ import annotations

import pytest
import torch

from metastable.audit.text import audit_text
from metastable.audit.traffic import Traffic

IDS = [list(range(5, 30)), list(range(40, 20, -1)), list(range(7, 19))]


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_averages_over_texts_are_the_text_audits(tiny, family):
    traffic, text = Traffic.of(tiny(family), IDS), audit_text(tiny(family), IDS)
    for name in ("entropy", "sink", "kappa"):
        expected = [getattr(head, name) for head in text.heads]
        torch.testing.assert_close(
            traffic.heads[name].mean(dim=0).flatten(), torch.tensor(expected, dtype=torch.float64)
        )
    expected = torch.tensor([layer.d_eff for layer in text.layers], dtype=torch.float64)
    torch.testing.assert_close(traffic.layers["d_eff"].mean(dim=0), expected, rtol=1e-5, atol=0)
    assert traffic.embeddings.shape == (3, 24) and traffic.heads["sink"].shape == (3, 3, 3)


def test_mean_cosine_is_that_of_all_pairs(tiny):
    points = tiny("bert").points(IDS[:1])[0][1]
    gram = torch.nn.functional.normalize(points, dim=1) @ torch.nn.functional.normalize(points, dim=1).T
    n = len(points)
    expected = float((gram.sum() - n) / (n * (n - 1)))
    assert float(Traffic.of(tiny("bert"), IDS[:1]).layers["cosine"][0, 1]) == pytest.approx(expected, rel=1e-9)
