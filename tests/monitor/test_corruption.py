import numpy as np
import torch

from metastable.monitor.corruption import DISPLACED, REPLACED, SHARE_DISPLACED, SHARE_REPLACED, corrupted

SPECIAL = (1, 2)


def items(count: int = 300, n: int = 40) -> list[dict[str, torch.Tensor]]:
    rows = np.random.default_rng(0).integers(10, 1000, (count, n))
    return [{"input_ids": torch.tensor([[1, *row, 2]])} for row in rows]


def test_only_touched_tokens_change_and_special_ones_stay() -> None:
    texts = items()
    for kind in (REPLACED, DISPLACED):
        copies, touched = corrupted(texts, SPECIAL, kind, seed=3)
        for text, copy, hit in zip(texts, copies, touched, strict=True):
            old, new = text["input_ids"][0].numpy(), copy["input_ids"][0].numpy()
            assert len(old) == len(new) and (new[0], new[-1]) == (1, 2) and len(hit) == 40
            assert (old[1:-1] == new[1:-1])[~hit].all()
            assert copy["attention_mask"].shape == copy["input_ids"].shape


def test_replaced_tokens_are_a_share_of_all_and_come_from_the_texts() -> None:
    texts = items()
    copies, touched = corrupted(texts, SPECIAL, REPLACED, seed=3)
    share = np.concatenate(touched).mean()
    assert abs(share - SHARE_REPLACED) < 4 * np.sqrt(SHARE_REPLACED * (1 - SHARE_REPLACED) / 12000)
    known = {int(i) for text in texts for i in text["input_ids"][0]} - set(SPECIAL)
    assert {int(i) for copy in copies for i in copy["input_ids"][0, 1:-1]} <= known


def test_displaced_tokens_are_one_span_in_another_order() -> None:
    texts = items()
    copies, touched = corrupted(texts, SPECIAL, DISPLACED, seed=3)
    for text, copy, hit in zip(texts, copies, touched, strict=True):
        where = np.flatnonzero(hit)
        assert len(where) == round(SHARE_DISPLACED * 40) == where[-1] - where[0] + 1
        old, new = (item["input_ids"][0, 1:-1].numpy() for item in (text, copy))
        assert sorted(old[hit]) == sorted(new[hit])


def test_texts_without_content_and_the_same_seed() -> None:
    texts = [{"input_ids": torch.tensor([[1, 2]])}, *items(3)]
    for kind in (REPLACED, DISPLACED):
        first, touched = corrupted(texts, SPECIAL, kind, seed=5)
        again, _ = corrupted(texts, SPECIAL, kind, seed=5)
        assert first[0]["input_ids"].tolist() == [[1, 2]] and len(touched[0]) == 0
        assert all(torch.equal(a["input_ids"], b["input_ids"]) for a, b in zip(first, again, strict=True))
