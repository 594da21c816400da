import numpy as np
import torch

from metastable.monitor.pairs import DIRECTIONS, Pairs, embeddings
from metastable.monitor.trace import Trace


def said(rows: list[list[int]], numbers: list[list[int]]) -> Trace:
    """A trace of texts with these ids, of which these tokens were chosen."""
    count = max(len(row) for row in numbers)
    mask = torch.tensor([[i < len(row) for i in range(count)] for row in numbers])
    chosen = torch.tensor([row + [0] * (count - len(row)) for row in numbers])
    points = torch.zeros(2, len(rows), count, 3)
    lengths = np.array([len(row) for row in rows])
    return Trace(points, points[:, :, 0], mask, chosen, lengths, [np.array(row, dtype=np.int64) for row in rows])


def drawn(count: int) -> tuple[torch.Tensor, list[np.ndarray]]:
    """Tokens whose first coordinate is handed on to the next one with correlation about 0.9; two coordinates are
    noise."""
    chance = np.random.default_rng(0)
    table = chance.normal(size=(400, 3))
    texts = []
    for _ in range(count):
        row = [int(chance.integers(400))]
        for _ in range(30):
            aim = 0.9 * table[row[-1], 0] + 0.3 * chance.normal()
            row.append(int(chance.choice(np.argsort(np.abs(table[:, 0] - aim))[:5])))
        texts.append(np.array(row))
    return torch.from_numpy(table), texts


def test_directions_are_the_canonical_ones() -> None:
    """The first product is large for neighbours: its mean is their canonical correlation, up to the ridge."""
    table, texts = drawn(60)
    pairs = Pairs.fit(table, texts)
    assert pairs.before.shape == (400, 3) == pairs.behind.shape
    one, other = np.concatenate([t[:-1] for t in texts]), np.concatenate([t[1:] for t in texts])
    u, v = pairs.before.double().numpy(), pairs.behind.double().numpy()
    correlation = np.array([np.corrcoef(u[one, r], v[other, r])[0, 1] for r in range(3)])
    assert abs(correlation[0] - 0.93) < 0.05 and np.abs(correlation[1:]).max() < 0.2
    known = table.numpy()[:, 0]
    assert abs(np.corrcoef(u[:, 0], known)[0, 1]) > 0.99


def test_products_stop_at_the_ends_of_a_text_and_follow_the_chosen_tokens() -> None:
    table, texts = drawn(20)
    pairs = Pairs.fit(table, texts)
    rows = [[5, 6, 7, 8], [9], [], [10, 11]]
    before, behind = pairs.products(said(rows, [[0, 2, 3], [0], [], [0, 1]]))
    u, v = pairs.before.float(), pairs.behind.float()
    zero = torch.zeros(3)
    for found, wanted in (
        (before[0], [zero, u[6] * v[7], u[7] * v[8]]),
        (behind[0], [u[5] * v[6], u[7] * v[8], zero]),
        (before[1, :1], [zero]),
        (behind[1, :1], [zero]),
        (before[3, :2], [zero, u[10] * v[11]]),
        (behind[3, :2], [u[10] * v[11], zero]),
    ):
        torch.testing.assert_close(found, torch.stack(wanted), rtol=2e-3, atol=2e-3)


def test_texts_of_single_tokens_have_no_pairs() -> None:
    pairs = Pairs.fit(torch.randn(10, 4), [np.array([3]), np.array([], dtype=np.int64)])
    assert not pairs.before.any()
    trace = said([[3], [400]], [[0], [0]])
    assert pairs.products(trace)[0].shape == (2, 1, 1)


def test_embeddings_of_a_model(bert) -> None:
    table = embeddings(bert)
    assert table is not None and table.shape == bert.embeddings.word_embeddings.weight.shape
    assert embeddings(torch.nn.Linear(3, 3)) is None
    assert len(Pairs.fit(table, [np.array([5, 6, 7])]).before[0]) == min(DIRECTIONS, table.shape[1])
