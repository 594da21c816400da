import pytest
import torch

from metastable.errors import InvalidInput
from metastable.monitor.sites import ear_of, sites_of


def test_sites_are_those_of_the_opened_encoder(encoder, bert) -> None:
    found = sites_of(bert, encoder.adapter, 3)
    assert [site.block for site in found] == [site.block for site in encoder.sites]
    torch.testing.assert_close(found[1].layer.heads[0].B, encoder.layers[1].heads[0].B)


def test_the_implementation_of_attention_is_not_touched(bert, monitor) -> None:
    before = bert.config._attn_implementation
    ear_of(bert, monitor.about)
    assert bert.config._attn_implementation == before


@pytest.mark.parametrize("adapter", ["vit", "no such adapter"])
def test_an_adapter_that_does_not_fit_is_told(bert, adapter: str) -> None:
    with pytest.raises(InvalidInput, match="has no attention where"):
        sites_of(bert, adapter, 3)
