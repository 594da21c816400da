import numpy as np
import torch

from metastable.monitor.batches import TOKENS_AT_ONCE, padded, special_ids, traces
from metastable.monitor.sites import ear_of
from walks import walks


def test_batches_are_of_similar_length_and_hold_every_text_once(encoder, monitor) -> None:
    texts = walks(200, 1)
    items = encoder.inputs.prepare(texts)
    ear = ear_of(encoder.model, monitor.about, encoder.sites)
    seen = []
    for numbers, trace in traces(ear, encoder.inputs, items):
        assert trace.lengths.tolist() == [len(texts[i]) for i in numbers]
        assert [ids.tolist() for ids in trace.ids] == [texts[i] for i in numbers]
        assert len(numbers) * max(trace.lengths) <= TOKENS_AT_ONCE
        seen += numbers
    assert sorted(seen) == list(range(200))


def test_padding_is_on_the_right_and_masked() -> None:
    rows = [{"input_ids": torch.tensor([[3, 4, 5]])}, {"input_ids": torch.tensor([[6]])}]
    made = padded(rows, 9)
    assert made["input_ids"].tolist() == [[3, 4, 5], [6, 9, 9]]
    assert made["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]


def test_unknown_and_mask_are_content() -> None:
    class Speaker:
        cls_token_id, sep_token_id, pad_token_id, bos_token_id, eos_token_id = 2, 3, 0, None, None
        unk_token_id, mask_token_id = 1, 4

    assert special_ids(Speaker()) == (0, 2, 3)
    assert special_ids(None) == ()


def test_a_model_in_training_is_run_in_evaluation_and_left_in_training(encoder, monitor) -> None:
    encoder.model.train()
    try:
        one, other = (monitor.measure(walks(3, 2)) for _ in range(2))
        assert encoder.model.training
    finally:
        encoder.model.eval()
    np.testing.assert_array_equal(one, other)
