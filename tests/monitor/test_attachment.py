import copy
import gc
import threading
import weakref

import pytest
import torch

from metastable.errors import InvalidInput
from metastable.monitor.attachment import Attachment
from tiny_encoders import configs, random_model
from walks import walks


def batch(texts) -> dict:
    longest = max(map(len, texts))
    ids = torch.tensor([text + [0] * (longest - len(text)) for text in texts])
    return {"input_ids": ids, "attention_mask": (ids > 0).long()}


def test_scores_are_those_of_the_texts_and_the_output_is_bit_identical(monitor, bert) -> None:
    texts = walks(12, 9)
    with torch.no_grad():
        plain = bert(**batch(texts)).last_hidden_state
        with monitor.attach(bert) as attached:
            own = bert(**batch(texts)).last_hidden_state
    assert torch.equal(plain, own)
    assert attached.texts == 12 and attached.failed == 0, attached.problem
    expected = monitor.score(texts)
    for one, other in zip(attached.recent, expected, strict=True):
        assert abs(one.surprise - other.surprise) < 1e-3 and one.length == other.length
    assert bert.config._attn_implementation != "eager"


def test_detach_leaves_nothing_behind(monitor) -> None:
    model = random_model(configs()["bert"])
    before = {name: dict(module.__dict__) for name, module in model.named_modules()}
    attached = monitor.attach(model)
    attached.detach()
    attached.detach()
    for name, module in model.named_modules():
        assert module.__dict__.keys() == before[name].keys()
        assert len(module._forward_hooks) == len(module._forward_pre_hooks) == 0
    held = weakref.ref(attached)
    del attached
    gc.collect()
    assert held() is None


@pytest.mark.parametrize("first", [0, 1])
def test_two_attachments_end_in_either_order(monitor, first: int) -> None:
    model = random_model(configs()["bert"])
    two = [monitor.attach(model), monitor.attach(model)]
    two[first].detach()
    with torch.no_grad():
        model(**batch(walks(3, 1)))
    assert [one.texts for one in two] == ([0, 3] if first == 0 else [3, 0])
    two[1 - first].detach()
    assert "forward" not in model.__dict__ and not any(m._forward_pre_hooks for m in model.modules())


def test_a_caller_that_bypasses_hooks_is_heard(monitor, bert) -> None:
    """As sentence-transformers does, which calls forward itself."""
    with torch.no_grad(), monitor.attach(bert) as attached:
        bert.forward(**batch(walks(3, 1)))
    assert attached.texts == 3


def test_only_a_share_of_the_runs_is_scored(monitor, bert) -> None:
    """200 runs at 25%: 50 +- 6.1."""
    with torch.no_grad(), monitor.attach(bert, sample_rate=0.25, keep=10, seed=1) as attached:
        one = batch(walks(1, 3))
        for _ in range(200):
            bert(**one)
    assert attached.runs == 200 and abs(attached.texts - 50) < 19
    assert len(attached.recent) == 10


def test_every_score_is_handed_over_and_a_callback_that_fails_is_counted(monitor, bert) -> None:
    seen = []
    with torch.no_grad(), monitor.attach(bert, on_score=seen.append) as attached:
        bert(**batch(walks(5, 3)))
    assert seen == list(attached.recent)

    def broken(score) -> None:
        raise KeyError("broken")

    with torch.no_grad(), monitor.attach(bert, on_score=broken) as attached:
        bert(**batch(walks(5, 3)))
    assert attached.failed == 1 and "broken" in attached.problem


def test_threads_share_an_attachment(monitor, bert) -> None:
    def run() -> None:
        with torch.no_grad():
            for seed in range(10):
                bert(**batch(walks(3, seed)))

    with monitor.attach(bert) as attached:
        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert attached.texts == 120 and attached.failed == 0 and attached.stream.seen <= 120


def test_a_stream_that_changes_is_noticed(monitor, bert) -> None:
    with torch.no_grad(), monitor.attach(bert) as attached:
        bert(**batch(walks(60, 11)))
        assert not attached.stream.alarm
        bert(**batch([[7 + i % 3] * 20 for i in range(40)]))
    assert attached.stream.alarm and attached.alarms > 30


def test_gradients_still_flow(monitor, bert) -> None:
    with monitor.attach(bert):
        loss = bert(**batch(walks(2, 1))).last_hidden_state.square().sum()
        (gradient,) = torch.autograd.grad(loss, bert.encoder.layer[0].output.dense.weight)
    assert torch.isfinite(gradient).all()


def test_another_model_is_refused(monitor, bert) -> None:
    with pytest.raises(InvalidInput, match="belongs to weights"):
        monitor.attach(random_model(configs()["bert"], seed=5))
    with pytest.raises(InvalidInput, match="float64"):
        monitor.attach(copy.deepcopy(bert).double())


def test_it_says_what_it_is(monitor, bert) -> None:
    with monitor.attach(bert) as attached:
        assert isinstance(attached, Attachment)
        assert repr(attached) == "Attachment(0 runs, 0 texts, 0 alarms, 0 failed)"
