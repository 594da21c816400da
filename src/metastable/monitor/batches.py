"""Texts through the model, a few of similar length at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from metastable.encoders.capture import forward
from metastable.encoders.inputs import Inputs
from metastable.errors import InvalidInput
from metastable.monitor.listening import Ear, Listening
from metastable.monitor.runnable import refuse_what_dies
from metastable.monitor.trace import Trace

TOKENS_AT_ONCE = 2048
"""Tokens of a batch, padding counted: enough to keep two cores busy, little enough for any machine."""


def special_ids(tokenizer: Any) -> tuple[int, ...]:
    """Ids of the tokens that a tokenizer adds to a text: begin, end, separator, padding."""
    names = ("cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id", "pad_token_id")
    found = {getattr(tokenizer, name, None) for name in names}
    return tuple(sorted(i for i in found if isinstance(i, int)))


def padded(items: Sequence[dict[str, Any]], pad: int) -> dict[str, Tensor]:
    """Inputs of one text each as one batch, padded on the right."""
    rows = [item["input_ids"][0] for item in items]
    longest = max(len(row) for row in rows)
    ids = torch.full((len(rows), longest), pad, dtype=torch.long)
    mask = torch.zeros((len(rows), longest), dtype=torch.long)
    for b, row in enumerate(rows):
        ids[b, : len(row)] = row
        mask[b, : len(row)] = 1
    return {"input_ids": ids, "attention_mask": mask}


def traces(
    ear: Ear, inputs: Inputs, items: Sequence[dict[str, Any] | Tensor], report: Callable[[int], None] | None = None
) -> Iterator[tuple[list[int], Trace]]:
    """The trace of every batch, with the numbers of its texts; shortest first."""
    for numbers, trace, _, _ in passes(ear, inputs, items, report):
        yield numbers, trace


def passes(
    ear: Ear, inputs: Inputs, items: Sequence[dict[str, Any] | Tensor], report: Callable[[int], None] | None = None
) -> Iterator[tuple[list[int], Trace, Any, Any]]:
    """Numbers of its texts, trace, input and output of every batch; shortest first."""
    refuse_what_dies(ear.model)
    texts = [item for item in items if isinstance(item, dict) and "input_ids" in item]
    batched = len(texts) == len(items)
    size = [item["input_ids"].shape[1] if isinstance(item, dict) and batched else 0 for item in items]
    order = [int(i) for i in np.argsort(size, kind="stable")]
    pad = _pad_id(ear.model, inputs)
    heard: list[Trace] = []
    done = 0
    me = threading.get_ident()
    with Listening(ear, heard.append, wanted=lambda: threading.get_ident() == me) as listening:
        while done < len(order):
            count = 1
            while batched and done + count < len(order):
                if (count + 1) * size[order[done + count]] > TOKENS_AT_ONCE:
                    break
                count += 1
            numbers = order[done : done + count]
            one: Any = padded([texts[i] for i in numbers], pad) if batched else items[numbers[0]]
            output = run(ear.model, one)
            if not heard:
                raise InvalidInput(f"the model could not be listened to: {listening.problem}")
            yield numbers, heard.pop(), one, output
            done += count
            if report is not None:
                report(done)


def pooled(item: Any, output: Any, pooling: str, batch_first: bool) -> Float[Tensor, "b d"]:
    """Unit embeddings of a batch: the last hidden states, pooled over what is no padding."""
    last = (output if isinstance(output, Tensor) else output.last_hidden_state).double().cpu()
    if isinstance(item, Tensor) and not batch_first:
        last = last.transpose(0, 1)
    if pooling == "cls":
        row = last[:, 0]
    else:
        mask = item["attention_mask"] if isinstance(item, dict) and "attention_mask" in item else None
        weight = torch.ones(last.shape[:2]) if mask is None else mask
        row = (last * weight[..., None]).sum(dim=1) / weight.sum(dim=1, keepdim=True)
    return torch.nn.functional.normalize(row, dim=1)


def run(model: nn.Module, item: Any) -> Any:
    """One run of the model in evaluation mode, in its own precision."""
    training = model.training
    model.eval()
    try:
        dtype = next(model.parameters()).dtype
        if isinstance(item, Tensor):
            return forward(model, item.to(dtype))
        return forward(model, {k: v.to(dtype) if v.is_floating_point() else v for k, v in item.items()})
    finally:
        model.train(training)


def _pad_id(model: nn.Module, inputs: Inputs) -> int:
    known = (
        getattr(inputs.tokenizer, "pad_token_id", None),
        getattr(getattr(model, "config", None), "pad_token_id", None),
    )
    return next((i for i in known if isinstance(i, int)), 0)
