import pytest
import torch

from metastable.monitor.one_pass import Chosen, Room
from metastable.monitor.onto_sphere import OntoSphere

B, T, K, D, PLACES = 5, 23, 9, 40, 3


def made(seed: int) -> tuple[list[torch.Tensor], Chosen]:
    """Tokens at every place; texts with 9, 4, 1, 0 and 7 chosen tokens."""
    g = torch.Generator().manual_seed(seed)
    x = [torch.randn(B, T, D, generator=g) + 0.3 for _ in range(PLACES)]
    column = torch.stack([torch.randperm(T, generator=g)[:K].sort().values for _ in range(B)])
    mask = torch.arange(K)[None] < torch.tensor([9, 4, 1, 0, 7])[:, None]
    return x, Chosen(column, mask, torch.tensor([0, 3, 1, 0, 5]))


def maps(kind: str) -> OntoSphere:
    g = torch.Generator().manual_seed(7)
    if kind in ("exact", "scaled"):
        return OntoSphere(torch.rand(D, generator=g) + 0.5, torch.randn(D, generator=g), False, kind == "exact")
    return OntoSphere(None, None, kind == "centred")


@pytest.mark.parametrize("kind", ["exact", "scaled", "centred", "plain"])
@pytest.mark.parametrize("threads", [1, 2])
def test_one_pass_is_what_tensor_arithmetic_says(kind: str, threads: int) -> None:
    x, chosen = made(0)
    onto = maps(kind)
    fused, slow = (Room(torch.full((PLACES, B, K, D), torch.nan), chosen) for _ in range(2))
    slow.fused = False
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for place in range(PLACES):
            fused.take(place, onto, x[place])
            slow.take(place, onto, x[place])
    finally:
        torch.set_num_threads(before)
    assert fused.fused and not slow.fused
    points = slow.points.nan_to_num()
    torch.testing.assert_close(fused.points, points, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(fused.first, slow.first, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(fused.sums, points.sum(dim=2), atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(fused.steps, (points[1:] * points[:-1]).sum(dim=(2, 3)), atol=1e-4, rtol=1e-5)
    assert not fused.points[:, 3].any() and not fused.points[:, 1, 4:].any()


@pytest.mark.parametrize("change", ["half", "transposed"])
def test_what_cannot_be_read_in_one_pass_is_read_all_the_same(change: str) -> None:
    x, chosen = made(1)
    onto = maps("plain")
    given = [t.half() if change == "half" else t.transpose(1, 2).contiguous().transpose(1, 2) for t in x]
    room, plain = (Room(torch.zeros(PLACES, B, K, D), chosen) for _ in range(2))
    for place in range(PLACES):
        room.take(place, onto, given[place])
        plain.take(place, onto, given[place].float().contiguous())
    assert plain.fused and not room.fused
    torch.testing.assert_close(room.points, plain.points, atol=1e-6, rtol=1e-5)
    for one, other in zip(room.kept(), plain.kept(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-5)


def test_numbers_that_are_none_stay_so() -> None:
    x, chosen = made(2)
    x[0][0, :, 3] = torch.nan
    x[1][1] = torch.inf
    room = Room(torch.zeros(PLACES, B, K, D), chosen)
    for place in range(PLACES):
        room.take(place, maps("plain"), x[place])
    assert room.sums[0, 0].isnan().any() and room.sums[1, 1].isnan().any() and room.steps[0, 0].isnan()
    assert torch.isfinite(room.sums[:, 4]).all()
