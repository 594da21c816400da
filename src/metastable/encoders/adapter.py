"""`Adapter`: the names under which a family of encoders keeps its attention, and what is found there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from metastable.arguments import OneLine
from metastable.encoders.layer import Layer, RawAttention
from metastable.encoders.norm import Norm
from metastable.encoders.positions import Positions
from metastable.encoders.site import Site
from metastable.errors import InvalidInput


@dataclass(frozen=True, repr=False)
class Adapter(OneLine):
    """Names of one family's modules: `blocks`, `first_norm`, `separated_by` in the model, the rest in a block."""

    name: str
    families: tuple[str, ...]
    blocks: str
    query: str
    key: str
    value: str
    output: str
    norm: str
    """Post-norm: the norm that ends a block. Pre-norm: the norm in front of attention."""
    order: str
    first_norm: str | None = None
    """Post-norm: the norm in front of the first block; pre-norm: the one that replaces an identity there."""
    separated_by: str | None = None
    """A module that, if present, stands between `first_norm` and the first block, which then has no norm."""
    layer_scale: str | None = None
    """A learned factor per coordinate on the attention output, folded into W_O."""
    positions: Callable[[nn.Module, int], Positions] | None = None
    unroll: Callable[[nn.Module], list[nn.Module]] | None = None
    """The sequence of blocks as they are called, for models that share blocks."""

    def fits(self, model: nn.Module) -> bool:
        """Whether the model has the modules that the adapter names."""
        blocks = self.stack(model)
        if not blocks:
            return False
        names = {self.query, self.key, self.value, self.output, self.norm}
        return all(find_module(blocks[-1], name) is not None for name in names)

    def stack(self, model: nn.Module) -> list[nn.Module]:
        """The blocks in the order in which they are called."""
        found = find_module(model, self.blocks)
        if not isinstance(found, nn.ModuleList):
            return []
        return self.unroll(model) if self.unroll else list(found)

    def sites(self, model: nn.Module, n_heads: int) -> list[Site]:
        """Every attention layer of the model, folded."""
        calls: Counter[int] = Counter()
        norm_calls: Counter[int] = Counter()
        blocks = self.stack(model)
        result = []
        for l, block in enumerate(blocks):
            norm = self._norm_before(model, blocks, l)
            raw = self._raw(block, n_heads)
            folds = Norm.of(norm, raw.query.shape[1])
            if folds.d != raw.query.shape[1]:
                raise InvalidInput(
                    f"the norm of layer {l} has {folds.d} entries, its queries read {raw.query.shape[1]}"
                )
            positions = Positions() if self.positions is None else self.positions(model, l)
            folded = Layer.fold(l, raw, folds, self.order, positions)
            entry, exit_ = find_module(block, self.query), find_module(block, self.output)
            assert entry is not None and exit_ is not None
            update_module = exit_ if self.layer_scale is None else find_module(block, self.layer_scale) or exit_
            result.append(
                Site(folded, block, calls[id(block)], norm, norm_calls[id(norm)], entry, exit_, update_module)
            )
            calls[id(block)] += 1
            norm_calls[id(norm)] += 1
        return result

    def _norm_before(self, model: nn.Module, blocks: Sequence[nn.Module], l: int) -> nn.Module | None:
        first = None if self.first_norm is None else find_module(model, self.first_norm)
        if self.separated_by is not None and find_module(model, self.separated_by) is not None:
            first = None
        if self.order == "post":
            return first if l == 0 else find_module(blocks[l - 1], self.norm)
        norm = find_module(blocks[l], self.norm)
        return first if isinstance(norm, nn.Identity) else norm

    def _raw(self, block: nn.Module, n_heads: int) -> RawAttention:
        modules = [find_module(block, name) for name in (self.query, self.key, self.value, self.output)]
        if modules[0] is modules[1]:  # one fused projection
            weight, bias = linear(modules[0])
            (q, k, v), (bq, bk, bv) = weight.chunk(3), bias.chunk(3)
        else:
            (q, bq), (k, bk), (v, bv) = (linear(m) for m in modules[:3])
        o, bo = linear(modules[3])
        scale = None if self.layer_scale is None else find_module(block, self.layer_scale)
        if scale is not None:
            factor = next(iter(scale.parameters())).detach().double().cpu()
            o, bo = factor[:, None] * o, factor * bo
        if k.shape != q.shape:
            raise InvalidInput(
                f"keys must be as many as queries, got {k.shape[0]} and {q.shape[0]} rows (grouped-query attention)"
            )
        if q.shape[0] % n_heads:
            raise InvalidInput(f"{q.shape[0]} rows of queries cannot be split into {n_heads} heads")
        return RawAttention(q, k, v, o, bq, bk, bv, bo, n_heads, (q.shape[0] // n_heads) ** -0.5)


def find_module(module: nn.Module, path: str) -> nn.Module | None:
    """The module at a dotted path inside another one, if there is one."""
    found: Any = module
    for name in path.split("."):
        found = getattr(found, name, None)
        if found is None:
            return None
    return found if isinstance(found, nn.Module) else None


def linear(module: nn.Module | None) -> tuple[Float[Tensor, "a b"], Float[Tensor, "a"]]:
    """Weight and bias of a linear map in float64 (zeros without a bias)."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2 or not weight.is_floating_point():
        kind = f"{type(module).__name__}" + (f" of {weight.dtype}" if isinstance(weight, Tensor) else "")
        raise InvalidInput(f"a projection must be a linear map with floating weights, got {kind}")
    bias = getattr(module, "bias", None)
    w = weight.detach().double().cpu()
    return w, torch.zeros(w.shape[0], dtype=torch.float64) if bias is None else bias.detach().double().cpu()
