import numpy as np
import torch

from metastable.monitor.trace import Trace, chosen, evenly


def test_all_tokens_where_there_is_room() -> None:
    content = torch.tensor([[False, True, True, False, True], [True, False, False, False, False]])
    column, mask, number = chosen(content, None)
    assert column[0].tolist() == [1, 2, 4] and mask[0].all() and number[0].tolist() == [0, 1, 2]
    assert column[1, 0] == 0 and mask[1].tolist() == [True, False, False]


def test_tokens_are_spread_evenly_and_the_ends_are_among_them() -> None:
    for n in (9, 31, 100, 257):
        content = torch.zeros(1, n + 5, dtype=torch.bool)
        content[:, 3 : n + 3] = True
        column, mask, number = chosen(content, 8)
        expected = np.floor(np.linspace(0, n - 1, 8) + 0.5)
        assert number[0].tolist() == expected.tolist()
        assert (column - number == 3).all() and mask.all()


def test_padding_does_not_change_the_choice() -> None:
    content = torch.ones(1, 50, dtype=torch.bool)
    longer = torch.zeros(1, 90, dtype=torch.bool)
    longer[:, 40:] = True  # padded on the left
    assert torch.equal(chosen(content, 16)[0] + 40, chosen(longer, 16)[0])


def test_a_row_without_content_has_no_token() -> None:
    column, mask, _ = chosen(torch.zeros(2, 4, dtype=torch.bool), 8)
    assert not mask.any() and column.shape[0] == 2


def test_means_are_over_real_tokens() -> None:
    points = torch.zeros(2, 1, 3, 4)
    points[:, 0, 0, 0], points[:, 0, 1, 1] = 1.0, 1.0
    mask = torch.tensor([[True, True, False]])
    trace = Trace(points, points[:, :, 0], mask, torch.arange(3)[None], np.array([2]))
    assert trace.means()[0, 0].tolist() == [0.5, 0.5, 0.0, 0.0]


def test_any_tokens_are_chosen_evenly() -> None:
    """Any mask, any number: against numpy's even spacing."""
    g = torch.Generator().manual_seed(0)
    for most in (None, 1, 2, 8, 40):
        content = torch.rand(12, 30, generator=g) < 0.6
        content[3] = False
        column, mask, number = chosen(content, most)
        for b, row in enumerate(content):
            places = row.nonzero().flatten()
            k = len(places) if most is None else min(most, len(places))
            picks = np.floor(np.linspace(0, len(places) - 1, k) + 0.5).astype(int) if k > 1 else np.arange(k)
            assert mask[b].sum() == k and mask[b, :k].all()
            assert number[b, :k].tolist() == picks.tolist()
            assert column[b, :k].tolist() == places[picks].tolist()


def test_numbers_are_spread_evenly() -> None:
    for n, held in ((1, 1), (9, 4), (126, 16), (5, 5), (0, 0)):
        assert evenly(n, held).tolist() == np.floor(np.linspace(0, max(n - 1, 0), held) + 0.5).tolist()


def test_ids_stand_one_text_behind_the_other() -> None:
    points = torch.zeros(2, 3, 2, 4)
    mask = torch.tensor([[True, True], [False, False], [True, False]])
    rows = [np.array([4, 5], dtype=np.int32), np.array([], dtype=np.int32), np.array([6], dtype=np.int32)]
    trace = Trace(points, points[:, :, 0], mask, torch.zeros(3, 2, dtype=torch.long), np.array([2, 0, 1]), rows)
    assert trace.row.tolist() == [4, 5, 6] and trace.row.dtype == np.int64
    assert trace.counts.tolist() == [2, 0, 1]
