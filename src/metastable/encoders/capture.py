"""Listening to a running model: the inputs of chosen modules, and closures that replace attention for one run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from metastable.encoders.layer import Layer
from metastable.encoders.site import Site
from metastable.errors import InvalidInput


class Recording:
    """First inputs (and outputs) of modules, in the order of their calls."""

    def __init__(self, batch_first: bool | None = None) -> None:
        self._batch_first = batch_first
        self._inputs: dict[int, list[Tensor]] = defaultdict(list)
        self._outputs: dict[int, list[Tensor]] = defaultdict(list)

    def input(self, module: nn.Module, call: int) -> Tensor:
        """The first input (n, d) of a module at its call number `call`."""
        return self._at(self._inputs, module, call)

    def output(self, module: nn.Module, call: int) -> Tensor:
        """The first output (n, d) of a module at its call number `call`."""
        return self._at(self._outputs, module, call)

    def _at(self, store: dict[int, list[Tensor]], module: nn.Module, call: int) -> Tensor:
        seen = store.get(id(module), [])
        if call >= len(seen):
            raise InvalidInput(
                f"a {type(module).__name__} was called {len(seen)} times where the adapter expects {call + 1} calls"
            )
        return single(seen[call], self._batch_first)


@contextmanager
def recorded(modules: Iterable[nn.Module], batch_first: bool | None = None) -> Iterator[Recording]:
    """Record every call of the modules inside the `with` block; `batch_first` as for `single`."""
    recording = Recording(batch_first)
    handles = []

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        recording._inputs[id(module)].append(_first_tensor(args, kwargs).detach())

    def after(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        recording._outputs[id(module)].append((output if isinstance(output, Tensor) else output[0]).detach())

    for module in {id(m): m for m in modules}.values():
        handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        handles.append(module.register_forward_hook(after))
    try:
        yield recording
    finally:
        for handle in handles:
            handle.remove()


Closure = Callable[[Layer, Tensor, Tensor, Tensor], Tensor]
"""(layer, q, k, v), each (H, n, d_h) with biases, scale and rotation applied -> attended values (H, n, d_h)."""


@contextmanager
def replaced_attention(sites: Sequence[Site], closure: Closure) -> Iterator[None]:
    """Inside the `with` block every attention layer computes `closure` instead of softmax attention.

    The closure stands between the projections of the model and its own output projection; batches have one text.
    """
    handles = []
    for site in {id(s.entry): s for s in sites}.values():
        replace = _replace_module if site.one_module else _replace_softmax
        handles += replace(site, closure)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _replace_softmax(site: Site, closure: Closure) -> list[Any]:
    held: list[Tensor] = []

    def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        held[:] = [_first_tensor(args, kwargs)]

    def leave(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        context = _close(site.layer, single(held[0], batch_first=True), closure)
        return (context[None].to(args[0]), *args[1:])

    return [
        site.entry.register_forward_pre_hook(enter, with_kwargs=True),
        site.exit.register_forward_pre_hook(leave),
    ]


def _replace_module(site: Site, closure: Closure) -> list[Any]:
    def leave(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        x = _first_tensor(args, kwargs)
        context = _close(site.layer, single(x, getattr(module, "batch_first", None)), closure)
        raw = site.layer.raw
        update = (context @ raw.output.T + raw.output_bias).to(x)
        return (update.reshape(x.shape), None)

    return [site.exit.register_forward_hook(leave, with_kwargs=True)]


def _close(layer: Layer, x: Tensor, closure: Closure) -> Tensor:
    raw, h = layer.raw, len(layer.heads)
    x = x.double().to(layer.device)

    def split(weight: Tensor, bias: Tensor, factor: float) -> Tensor:
        return (factor * (x @ weight.T + bias)).reshape(x.shape[0], h, -1).transpose(0, 1)

    root = raw.scale**0.5
    q, k = split(raw.query, raw.query_bias, root), split(raw.key, raw.key_bias, root)
    v = split(raw.value, raw.value_bias, 1.0)
    attended = closure(layer, layer.positions.rotate(q), layer.positions.rotate(k), v)
    return attended.transpose(0, 1).reshape(x.shape[0], -1)


def single(batch: Tensor, batch_first: bool | None = None) -> Tensor:
    """The (n, d) tokens of a batch of one; a batch of several texts is refused, since padding cannot be told apart.

    batch_first: which of the two leading axes is the batch; None takes the one that has length one.
    """
    if batch.ndim == 2:
        return batch
    if batch.ndim == 3:
        axis = 0 if batch_first or (batch_first is None and batch.shape[0] == 1) else 1
        if batch.shape[axis] == 1:
            return batch[0] if axis == 0 else batch[:, 0]
    raise InvalidInput(f"texts are run one by one, a batch of shape (1, n, d), got shape {tuple(batch.shape)}")


def _first_tensor(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            return value
    raise InvalidInput("a module of the model was called without a tensor, which no adapter describes")


def forward(model: nn.Module, inputs: dict[str, Any] | Tensor, **options: Any) -> Any:
    """One run of the model without gradients and without dropout, on the device where it lives."""
    device = next(model.parameters()).device
    with torch.no_grad(), evaluating(model):
        if isinstance(inputs, Tensor):
            return model(inputs.to(device))
        moved = {name: value.to(device) for name, value in inputs.items()}
        try:
            return model(**moved, **options)
        except (TypeError, ValueError, IndexError, RuntimeError) as error:
            if isinstance(error, torch.OutOfMemoryError) or "memory" in str(error):
                raise
            shape = tuple(next(iter(moved.values())).shape[1:])
            reason = " ".join(str(error).split())[:160]
            raise InvalidInput(f"the model cannot be run on an input of shape {shape}: {reason}") from error


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """A model that is being trained, for once as it is used; afterwards its modules are what they were."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def returning_attention(model: Any) -> Iterator[None]:
    """A model that returns its attention probabilities; the user's choice of implementation is put back."""
    before = getattr(getattr(model, "config", None), "_attn_implementation", None)
    change = getattr(model, "set_attn_implementation", None)
    if before in (None, "eager") or change is None:
        yield
        return
    change("eager")
    try:
        yield
    finally:
        change(before)
