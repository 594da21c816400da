"""A model with a part of it changed for a while: heads left out, blocks skipped, weights rounded, values replaced.

Every change is undone when its `with` block ends, and what it does to the model is read off the final embedding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from metastable.encoders import Encoder, Layer
from metastable.encoders.site import Site


def cosines(encoder: Encoder, items: Sequence[Any], own: Float[Tensor, "t d"]) -> Float[Tensor, "t"]:
    """Cosine of every text's embedding with the one that the unchanged model gave."""
    return (encoder.embed(items) * own).sum(dim=1)


def unshared(encoder: Encoder) -> bool:
    """Whether every layer has modules of its own (ALBERT calls the same ones again and again)."""
    return len({id(site.exit) for site in encoder.sites}) == len(encoder.sites)


@contextmanager
def without_heads(encoder: Encoder, heads: Iterable[tuple[int, int]]) -> Iterator[None]:
    """Heads (layer, head) whose update is zero: their columns of W_O."""
    changes = []
    for l, h in heads:
        site = encoder.sites[l]
        weight = _output(site).weight
        width = weight.shape[1] // len(site.layer.heads)
        changes.append((weight, slice(h * width, (h + 1) * width)))
    held = [(weight, columns, weight.data[:, columns].clone()) for weight, columns in changes]
    try:
        for weight, columns in changes:
            weight.data[:, columns] = 0
        yield
    finally:
        for weight, columns, before in held:
            weight.data[:, columns] = before


@contextmanager
def without_block(encoder: Encoder, l: int) -> Iterator[None]:
    """Block l hands on what it was given."""

    def leave(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        given = args[0] if args else kwargs["hidden_states"]
        return given if isinstance(output, Tensor) else (given, *output[1:])

    handle = encoder.sites[l].block.register_forward_hook(leave, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def replaced_matrices(
    encoder: Encoder, layers: Iterable[int], change: Callable[[Tensor], Tensor]
) -> Iterator[None]:
    """All matrices of some blocks changed."""
    matrices = {id(p): p for l in layers for p in encoder.sites[l].block.parameters() if p.ndim == 2}.values()
    held = [(p, p.data.clone()) for p in matrices]
    try:
        for p, before in held:
            p.data = change(before)
        yield
    finally:
        for p, before in held:
            p.data = before


def rounded(bits: int) -> Callable[[Tensor], Tensor]:
    """w -> s round(w / s), s = max|row| / (2^(bits-1) - 1): symmetric rounding, one scale for every output row.

    >>> rounded(3)(torch.tensor([[3.0, 1.4, -0.6]]))
    tensor([[ 3.,  1., -1.]])
    """
    most = 2 ** (bits - 1) - 1

    def change(weight: Tensor) -> Tensor:
        scale = weight.abs().amax(dim=1, keepdim=True).clamp_min(1e-30) / most
        return scale * torch.round(weight / scale)

    return change


def as_far(change: Callable[[Tensor], Tensor], seed: int) -> Callable[[Tensor], Tensor]:
    """The control of a change: a random one of the same size in every matrix."""
    generator = torch.Generator().manual_seed(seed)

    def random(weight: Tensor) -> Tensor:
        size = torch.linalg.matrix_norm(change(weight) - weight)
        noise = torch.randn(weight.shape, generator=generator, dtype=weight.dtype).to(weight.device)
        return weight + size / torch.linalg.matrix_norm(noise).clamp_min(1e-30) * noise

    return random


def sinks_replaced(heads: Iterable[tuple[int, int]], with_other: bool, seed: int = 0) -> Callable[..., Tensor]:
    """A closure for `Encoder.embed`: in some heads the most attended token of a text has the value 0.

    with_other: not 0 but the value of another token of the text, drawn at random: the same share of attention then
    carries the content of a token.
    """
    chosen: dict[int, list[int]] = {}
    for l, h in heads:
        chosen.setdefault(l, []).append(h)
    generator = torch.Generator().manual_seed(seed)

    def closure(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        own = chosen.get(layer.index, [])
        probabilities = torch.cat([torch.softmax(l, dim=-1) for _, l in layer.logit_blocks(q, k)], dim=1)
        for h in own:
            sink = int(probabilities[h].sum(dim=0).argmax())
            other = int(torch.randint(max(v.shape[1] - 1, 1), (1,), generator=generator))
            other += other >= sink and v.shape[1] > 1
            v = v.clone()
            v[h, sink] = v[h, other] if with_other else 0
        return probabilities @ v

    return closure


def _output(site: Site) -> Any:
    """The linear map W_O."""
    return site.exit.out_proj if site.one_module else site.exit
