import threading

import numpy as np
import pytest
import torch

from metastable.encoders import load
from metastable.monitor.listening import Ear, Listening
from tiny_encoders import configs, random_model

FAMILIES = [
    "bert",
    "roberta",
    "distilbert",
    "electra",
    "albert",
    "mpnet",
    "modernbert",
    "esm",
    "megatron-bert",
    "vit",
]


def hooks(model) -> int:
    return sum(
        len(m._forward_hooks) + len(m._forward_pre_hooks) + ("forward" in m.__dict__) for m in model.modules()
    )


def ear(encoder, **options) -> Ear:
    inputs = encoder.inputs
    return Ear.of(encoder.model, encoder.sites, inputs.kind, batch_first=inputs.batch_first, **options)


@pytest.mark.parametrize("family", FAMILIES)
def test_points_are_those_of_the_encoder_and_the_output_is_untouched(family: str) -> None:
    encoder = load(random_model(configs()[family]), name=family)
    model, before = encoder.model, hooks(encoder.model)
    if family == "vit":
        picture = torch.randn(encoder.inputs.shape, generator=torch.Generator().manual_seed(1))
        items, call = [picture], {"pixel_values": picture[None]}
    else:
        items = [list(range(5, 25))]
        call = {"input_ids": torch.tensor(items), "attention_mask": torch.ones(1, 20, dtype=torch.long)}
    heard = []
    with torch.no_grad():
        plain = model(**call).last_hidden_state
        with Listening(ear(encoder), heard.append) as listening:
            own = model(**call).last_hidden_state
        assert torch.equal(plain, own)
    assert listening.failed == 0, listening.problem
    assert hooks(model) == before
    (trace,) = heard
    points = encoder.points(items)[0]
    unit = torch.nn.functional.normalize(points, dim=2)
    for l, layer in enumerate(encoder.layers):
        if layer.norm.spherical:
            torch.testing.assert_close(trace.points[l, 0].double(), unit[l], atol=2e-4, rtol=0)
    end = torch.nn.functional.normalize(encoder.hidden_states(items)[0][-1], dim=1)
    torch.testing.assert_close(trace.points[-1, 0].double(), end, atol=1e-5, rtol=0)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_torchs_own_encoder_keeps_its_fused_path(nested: bool, batch_first: bool) -> None:
    """A hook would switch it off, and the output would differ in its last bits."""
    torch.manual_seed(0)
    block = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=batch_first)
    encoder = load(torch.nn.TransformerEncoder(block, 3, enable_nested_tensor=nested))
    model = encoder.model.eval()
    x = torch.randn(4, 9, 16)
    padding = torch.zeros(4, 9, dtype=torch.bool)
    padding[1, 6:] = padding[3, 4:] = True
    x = x if batch_first else x.transpose(0, 1)
    heard = []
    with torch.no_grad():
        plain = model(x, src_key_padding_mask=padding)
        with Listening(ear(encoder), heard.append) as listening:
            own = model(x, src_key_padding_mask=padding)
    assert torch.equal(plain, own) and not listening.failed, listening.problem
    assert hooks(model) == 0
    assert heard[0].lengths.tolist() == [9, 6, 9, 4]
    alone = (x if batch_first else x.transpose(0, 1))[3, :4]
    expected = torch.nn.functional.normalize(encoder.points([alone])[0][1], dim=1)
    torch.testing.assert_close(heard[0].points[1, 3, :4].double(), expected, atol=1e-4, rtol=0)


def test_padding_left_or_right_and_the_order_of_texts_do_not_matter(encoder) -> None:
    heard = []
    ids = torch.tensor([list(range(5, 17)) + [0] * 8, list(range(20, 40))])
    mask = (ids > 0).long()
    with torch.no_grad(), Listening(ear(encoder), heard.append):
        encoder.model(input_ids=ids[:1, :12], attention_mask=mask[:1, :12])
        encoder.model(input_ids=ids, attention_mask=mask)
        encoder.model(input_ids=ids.flip(0), attention_mask=mask.flip(0))
    alone, batch, turned = heard
    torch.testing.assert_close(batch.points[:, 0, :12], alone.points[:, 0], atol=1e-5, rtol=0)
    torch.testing.assert_close(turned.points[:, 1], batch.points[:, 0], atol=1e-5, rtol=0)
    assert not batch.points[:, 0, 12:].any()
    for a, b, c in zip(alone.glances, batch.glances, turned.glances, strict=True):
        np.testing.assert_allclose(b[:1], a, atol=2e-4, rtol=1e-3)
        np.testing.assert_allclose(b, c[::-1], atol=2e-4, rtol=1e-3)


def test_what_goes_wrong_here_never_reaches_the_model(encoder) -> None:
    def broken(trace) -> None:
        raise RuntimeError("a listener that fails")

    ids = torch.tensor([list(range(5, 15))])
    with torch.no_grad(), Listening(ear(encoder), broken) as listening:
        assert torch.isfinite(encoder.model(input_ids=ids).last_hidden_state).all()
        vectors = torch.randn(1, 6, encoder.d)
        encoder.model(inputs_embeds=vectors)
    assert listening.failed == 2 and "input_ids" in listening.problem


def test_a_run_that_raises_leaves_no_trace_and_the_next_one_is_heard(encoder) -> None:
    heard = []
    with torch.no_grad(), Listening(ear(encoder), heard.append) as listening:
        with pytest.raises(IndexError):
            encoder.model(input_ids=torch.tensor([[10**6]]))
        encoder.model(input_ids=torch.tensor([list(range(5, 15))]))
    assert len(heard) == 1 and listening.failed == 0


def test_threads_do_not_hear_each_other(encoder) -> None:
    found: dict[int, list] = {}

    def finish(trace) -> None:
        found.setdefault(threading.get_ident(), []).append(trace.ids[0].tolist())

    said: dict[int, list] = {}

    def speak(start: int) -> None:
        for i in range(15):
            ids = torch.arange(5 + start, 15 + start + i % 5)[None]
            said.setdefault(threading.get_ident(), []).append(ids[0].tolist())
            with torch.no_grad():
                encoder.model(input_ids=ids)

    with Listening(ear(encoder), finish):
        threads = [threading.Thread(target=speak, args=(k,)) for k in (0, 10, 20, 30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == said
