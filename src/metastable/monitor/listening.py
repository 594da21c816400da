"""`Listening`: the points of a running model, taken where its layers begin, without touching what it computes."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Integer
from torch import Tensor, nn

from metastable.encoders.site import Site
from metastable.errors import InvalidInput
from metastable.monitor.glance import Glance, glances
from metastable.monitor.one_pass import Chosen, Room
from metastable.monitor.onto_sphere import OntoSphere
from metastable.monitor.trace import STEPS, SUMS, Trace, chosen


@dataclass(frozen=True, eq=False)
class Ear:
    """What is needed to hear a model: where its layers begin, the maps onto the sphere, what is content."""

    model: nn.Module
    blocks: tuple[nn.Module, ...]
    """The layers in the order of their calls; one that is called again stands here again."""
    maps: tuple[OntoSphere, ...]
    looks: tuple[Glance, ...]
    kind: str
    batch_first: bool
    special: tuple[int, ...]
    tokens: int | None
    """At most so many tokens of a text; None: all."""

    @classmethod
    def of(
        cls,
        model: nn.Module,
        sites: Sequence[Site],
        kind: str,
        *,
        batch_first: bool = True,
        special: Sequence[int] = (),
        tokens: int | None = None,
    ) -> Ear:
        """For a model and its attention layers."""
        device = next(model.parameters()).device
        layers = [site.layer for site in sites]
        maps = [OntoSphere.before(site, device) for site in sites]
        end = OntoSphere(None, None, False)
        return cls(
            model, tuple(site.block for site in sites), (*maps, end), glances(layers), kind, batch_first,
            tuple(special), tokens,
        )  # fmt: skip

    @property
    def wrapped(self) -> bool:
        """Whether layers are wrapped, too: torch's own encoder leaves its fused path where a hook is registered."""
        return isinstance(self.model, nn.TransformerEncoder)


def _fresh(shape: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.empty(shape, device=device)


class Recording:
    """One run of the model, as it is heard."""

    def __init__(
        self,
        ear: Ear,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        memory: Callable[[tuple[int, ...], torch.device], Tensor] = _fresh,
    ) -> None:
        self.ear = ear
        self._memory = memory
        self.heard = 0
        """Places that were heard."""
        self.ids: Integer[np.ndarray, "b t"] | None = None
        self.content: Bool[np.ndarray, "b t"] | None = None
        self.attended: Bool[np.ndarray, "b t"] | None = None
        if ear.kind == "text":
            self._read_text(args, kwargs)
        elif ear.kind == "vectors":
            padding = kwargs.get("src_key_padding_mask", args[2] if len(args) > 2 else None)
            if padding is not None:
                self.attended = (padding == 0).cpu().numpy()

    def _read_text(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ids = kwargs.get("input_ids", args[0] if args else None)
        mask = kwargs.get("attention_mask", args[1] if len(args) > 1 else None)
        if not isinstance(ids, Tensor) or ids.ndim != 2 or ids.is_floating_point():
            raise InvalidInput("the model was called without input_ids, so its tokens are not known")
        self.ids = ids.cpu().numpy()
        self.attended = np.ones(self.ids.shape, dtype=bool)
        if isinstance(mask, Tensor) and mask.ndim == 2:
            self.attended = mask.bool().cpu().numpy()
        self.content = self.attended.copy()
        for special in self.ear.special:
            self.content &= self.ids != special

    def hear(self, x: Tensor) -> None:
        """The next place: input of a layer, or at the end the output of the last."""
        place = self.heard
        if place >= len(self.ear.maps):
            raise InvalidInput(f"the model called its layers more than {len(self.ear.blocks)} times")
        x = x.detach()
        if x.is_nested:
            x = x.to_padded_tensor(0.0)
        if x.ndim == 2:
            x = x[None]
        elif not self.ear.batch_first:
            x = x.transpose(0, 1)
        if place == 0:
            self._choose(x)
        if x.shape[:2] != self.shape and (x.shape[0] != self.shape[0] or self.last >= x.shape[1]):
            raise InvalidInput(f"a layer has tokens of shape {tuple(x.shape)} where {self.shape} was expected")
        width = self.room.points.shape[3]
        if x.shape[2] != width:
            raise InvalidInput(f"tokens have {x.shape[2]} coordinates at place {place}, {width} before")
        self.room.take(place, self.ear.maps[place], x)
        self.heard += 1

    def _choose(self, x: Tensor) -> None:
        attended = np.ones(x.shape[:2], dtype=bool) if self.attended is None else self.attended
        self.held = attended if self.content is None else self.content
        if self.held.shape != x.shape[:2]:
            raise InvalidInput(f"tokens of shape {tuple(x.shape)} do not belong to ids of {self.held.shape}")
        self.shape = x.shape[:2]
        column, self.mask, self.numbers = chosen(torch.from_numpy(self.held), self.ear.tokens)
        self.last = int(column.max())
        points = self._memory((len(self.ear.maps), *column.shape, x.shape[2]), x.device)
        start = torch.from_numpy(attended.argmax(axis=1))
        self.room = Room(points, Chosen(column, self.mask, start).to(x.device))

    def trace(self) -> Trace:
        """What was heard, when the run is over; on the CPU, where it is judged."""
        ear = self.ear
        if self.heard != len(ear.maps):
            raise InvalidInput(f"{self.heard} of {len(ear.maps)} places were heard: the run did not end")
        points, first, sums, steps = self.room.kept()
        lengths = self.held.sum(axis=1, dtype=np.int64)
        ids = None if self.ids is None else np.split(self.ids[self.held], np.cumsum(lengths)[:-1])
        counts = self.mask.sum(dim=1).numpy()
        offset = 1 if ear.special else 0
        told = [g.look(points[g.place], first[g.place], counts, self.numbers, offset) for g in ear.looks]
        looked = (
            (np.concatenate([a for a, _ in told], 1), np.concatenate([b for _, b in told], 1)) if told else None
        )
        return Trace(points, first, self.mask, self.numbers, lengths, ids, looked, {SUMS: sums, STEPS: steps})


class Listening:
    """Hears every run of a model until `stop`; `finish(trace)` is called after each, in the thread that ran it.

    Nothing that goes wrong here reaches the model: it is counted, told in `problem`, and the run goes on. reuse:
    every thread keeps the memory of its points for its next run, so a trace must not be kept beyond `finish`; new
    memory is written at half the speed.
    """

    def __init__(
        self,
        ear: Ear,
        finish: Callable[[Trace], None],
        *,
        wanted: Callable[[], bool] = lambda: True,
        reuse: bool = False,
    ) -> None:
        self.ear = ear
        self._memory = self._reused if reuse else _fresh
        self.failed = 0
        self.problem = ""
        self._finish = finish
        self._wanted = wanted
        self._here = threading.local()
        self._undo: list[Callable[[], None]] = []
        self.start()

    def start(self) -> None:
        """Listen, again after `stop`."""
        _wrap(self.ear.model, self._begin, self._end, self._undo)
        start = _wrap if self.ear.wrapped else _hook
        blocks = {id(block): block for block in self.ear.blocks}
        for block in blocks.values():
            start(block, self._enter, self._leave if block is self.ear.blocks[-1] else None, self._undo)

    def stop(self) -> None:
        """Leave the model as it was."""
        while self._undo:
            self._undo.pop()()

    def __enter__(self) -> Listening:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._here.run = None
        if self._wanted():
            self._safely(self._record, args, kwargs)

    def _record(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._here.run = Recording(self.ear, args, kwargs, self._memory)

    def _enter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        run = getattr(self._here, "run", None)
        if run is not None:
            x = next((v for v in (*args, *kwargs.values()) if isinstance(v, Tensor)), None)
            self._safely(run.hear, x)

    def _leave(self, output: Any) -> None:
        run = getattr(self._here, "run", None)
        if run is not None and run.heard == len(self.ear.blocks):
            self._safely(lambda: run.hear(output if isinstance(output, Tensor) else output[0]))

    def _end(self, output: Any) -> None:
        run = getattr(self._here, "run", None)
        self._here.run = None
        if run is not None and output is not None:
            self._safely(lambda: self._finish(run.trace()))

    def _reused(self, shape: tuple[int, ...], device: torch.device) -> Tensor:
        held = getattr(self._here, "memory", None)
        size = math.prod(shape)
        if held is None or held.numel() < size or held.device != device:
            # numpy asks the system for large pages, which are found faster than small ones
            fresh = torch.from_numpy(np.empty(size, np.float32)) if device.type == "cpu" else None
            held = self._here.memory = torch.empty(size, device=device) if fresh is None else fresh
        return held[:size].view(shape)

    def _safely(self, act: Callable[..., None], *args: Any) -> None:
        try:
            with torch.no_grad():
                act(*args)
        except Exception as error:
            self._here.run = None
            self.failed += 1
            self.problem = " ".join(str(error).split())[:160] or type(error).__name__


def _hook(module: nn.Module, enter: Any, leave: Any, undo: list[Callable[[], None]]) -> None:
    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        enter(args, kwargs)

    def after(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        leave(output)

    undo.append(module.register_forward_pre_hook(before, with_kwargs=True).remove)
    if leave is not None:
        undo.append(module.register_forward_hook(after, always_call=True).remove)


def _wrap(module: nn.Module, enter: Any, leave: Any, undo: list[Callable[[], None]]) -> None:
    """Put a function in front of forward, which callers that bypass hooks call as well."""
    inner = module.forward

    @functools.wraps(inner)
    def forward(*args: Any, **kwargs: Any) -> Any:
        if not state.active:
            return inner(*args, **kwargs)
        enter(args, kwargs)
        output = None
        try:
            output = inner(*args, **kwargs)
        finally:
            if leave is not None:
                leave(output)
        return output

    state = _Wrapped(module.__dict__.get("forward"))
    forward.metastable = state  # type: ignore[attr-defined]
    module.forward = forward
    undo.append(lambda: state.stop(module))


class _Wrapped:
    """What stood in the place of a function in front of forward, and whether that one still listens."""

    def __init__(self, held: Any) -> None:
        self.held = held
        self.active = True

    def stop(self, module: nn.Module) -> None:
        """Leave; one that stands behind another's goes when that one goes."""
        self.active = False
        while (state := getattr(module.__dict__.get("forward"), "metastable", None)) is not None:
            if state.active:
                return
            if state.held is None:
                del module.__dict__["forward"]
            else:
                module.__dict__["forward"] = state.held
