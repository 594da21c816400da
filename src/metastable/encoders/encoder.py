"""`Encoder`: a trained model, its attention layers as folded weights, and its hidden states."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from metastable.arguments import shown
from metastable.encoders.adapters import candidates, families
from metastable.encoders.capture import Closure, forward, recorded, replaced_attention, single
from metastable.encoders.inputs import Inputs
from metastable.encoders.layer import Layer
from metastable.encoders.model_config import is_decoder_family
from metastable.encoders.site import Site
from metastable.encoders.torch_encoder import torch_encoder_sites
from metastable.encoders.verification import TOLERANCE, Verification, compare_with_model
from metastable.errors import InvalidInput
from metastable.measure import on_device

QUERY_NORMS = {"q_norm", "k_norm", "query_norm", "key_norm", "q_layernorm", "k_layernorm", "norm_q", "norm_k"}
"""Names that modules have which normalise queries or keys."""


@dataclass(frozen=True, eq=False)
class Encoder:
    """A trained encoder: `layers[l].heads[h]` are `AttentionWeights`, `layers[l].flow()` is a flow of the engine.

    The extracted weights were checked against the model: `verification` says how well the model's own attention
    probabilities are rebuilt from them.
    """

    name: str
    family: str
    adapter: str
    model: nn.Module = field(repr=False)
    sites: tuple[Site, ...] = field(repr=False)
    inputs: Inputs = field(repr=False)
    verification: Verification
    pooling: str = "mean"
    stored_dtype: str = "float32"
    remarks: tuple[str, ...] = ()
    """What was noticed when the model was opened, one sentence each."""
    files: tuple[Path, ...] = field(default=(), repr=False)
    """The files that hold the weights; none for a model in memory."""

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The attention layers, norms folded in."""
        return tuple(site.layer for site in self.sites)

    @property
    def d(self) -> int:
        """Dimension of the tokens."""
        return self.layers[0].d

    @property
    def device(self) -> torch.device:
        """Where the folded layers are, and the hidden states that are returned."""
        return self.layers[0].device

    def to(self, device: Any) -> Encoder:
        """The encoder on another device; as in torch, the model itself moves there; None: where it is."""
        if device is None:
            return self
        on_device(torch.zeros(1), device)  # a device that cannot be used is told before anything moves
        try:
            self.model.to(device)
            sites = tuple(replace(site, layer=site.layer.to(device)) for site in self.sites)
        except RuntimeError as error:
            reason = str(error).splitlines()[0][:120]
            raise InvalidInput(f"device {shown(device)} cannot be used: {reason}") from None
        return replace(self, sites=sites)

    @property
    def tokenizer(self) -> Any:
        """The tokenizer, or None."""
        return self.inputs.tokenizer

    @property
    def notes(self) -> tuple[str, ...]:
        """What sets this encoder apart from the theory's setting, one sentence each."""
        said: dict[str, list[int]] = {}
        for layer in self.layers:
            for note in layer.notes:
                said.setdefault(note, []).append(layer.index)
        every = len(self.layers)
        where = {n: "all layers" if len(ls) == every else f"layers {_ranges(ls)}" for n, ls in said.items()}
        notes = [*(f"{where[n]}: {n}" for n in said), *self.remarks]
        if self.stored_dtype != "float32":
            notes.append(f"weights are stored in {self.stored_dtype} and were computed with in float32")
        return tuple(notes)

    def hidden_states(self, texts: Any) -> list[Float[Tensor, "layers n d"]]:
        """For every text the input of each layer and the output of the last: (L + 1, n, d), float64, no padding.

        texts: strings, lists of token ids, images (3, height, width) or token vectors (n, d), as the model takes.
        """
        return [self._listen(item)[0] for item in self.inputs.prepare(texts)]

    def points(self, texts: Any) -> list[Float[Tensor, "layers n d"]]:
        """For every text the tokens s on the sphere that each attention layer sees: (L, n, d), float64."""
        return [self._listen(item)[1] for item in self.inputs.prepare(texts)]

    def states_and_points(self, text: Any) -> tuple[Float[Tensor, "points n d"], Float[Tensor, "layers n d"]]:
        """`hidden_states` and `points` of one text, from one run of the model."""
        return self._listen(self.inputs.prepare([text])[0])

    def embed(self, texts: Any, closure: Closure | None = None) -> Float[Tensor, "t d"]:
        """Unit embedding of every text: last hidden state, pooled; with `closure` instead of softmax attention."""
        rows = []
        for item in self.inputs.prepare(texts):
            if closure is None:
                output = forward(self.model, item)
            else:
                with replaced_attention(self.sites, closure):
                    output = forward(self.model, item)
            last = output if isinstance(output, Tensor) else output.last_hidden_state
            last = single(last, self.inputs.batch_first).double().to(self.device)
            pooled = last[0] if self.pooling == "cls" else last.mean(dim=0)
            rows.append(pooled / torch.linalg.vector_norm(pooled).clamp_min(1e-300))
        return torch.stack(rows)

    def _listen(self, item: dict[str, Any] | Tensor) -> tuple[Tensor, Tensor]:
        modules = [m for s in self.sites for m in (s.block, s.norm, s.entry) if m is not None]
        with recorded(modules, self.inputs.batch_first) as heard:
            forward(self.model, item)
        states = [heard.input(s.block, s.block_call).double() for s in self.sites]
        states.append(heard.output(self.sites[-1].block, self.sites[-1].block_call).double())
        points = []
        for site in self.sites:
            seen = heard.input(site.entry, site.block_call)
            points.append(
                site.layer.norm.points(seen if site.norm is None else heard.input(site.norm, site.norm_call))
            )
        return torch.stack(states).to(self.device), torch.stack(points).to(self.device)

    def __repr__(self) -> str:
        return (
            f"Encoder({self.name!r}, {self.family}, {len(self.layers)} layers of {len(self.layers[0].heads)} "
            f"heads, d={self.d}, attention rebuilt to {self.verification.attention_error:.1e})"
        )


def build(
    model: nn.Module,
    name: str,
    inputs: Inputs,
    *,
    pooling: str = "mean",
    stored_dtype: str = "float32",
    remarks: tuple[str, ...] = (),
    files: tuple[Path, ...] = (),
) -> Encoder:
    """Find the attention of a model, fold it and verify it; refuse a model that no adapter describes."""
    was_training = model.training
    model.eval()
    try:
        if isinstance(model, nn.TransformerEncoder):
            options: list[tuple[str, Callable[[Any], list[Site]]]] = [("torch", torch_encoder_sites)]
            family = "torch"
        else:
            config: Any = model.config
            family = str(config.model_type)
            count = _head_count(config)
            options = [
                (adapter.name, partial(adapter.sites, n_heads=count)) for adapter in candidates(model, family)
            ]
        if not options:
            raise InvalidInput(
                f"{name} is a {family}, a family of causal decoders; metastable audits encoders"
                if is_decoder_family(family)
                else f"{name} ({family}) has no attention that an adapter finds; known families: "
                f"{', '.join(families())}"
            )
        found = _first_that_holds(model, name, options, inputs)
    finally:
        model.train(was_training)
    adapter_name, sites, verification = found
    return Encoder(
        name, family, adapter_name, model, tuple(sites), inputs, verification, pooling, stored_dtype, remarks, files
    )


def _first_that_holds(
    model: nn.Module, name: str, options: Sequence[tuple[str, Any]], inputs: Inputs
) -> tuple[str, list[Site], Verification]:
    samples = inputs.samples()
    problems: list[str] = []
    for adapter_name, sites_of in options:
        try:
            sites = sites_of(model)
        except (InvalidInput, RuntimeError) as error:
            problems.append(f"the adapter {adapter_name!r} does not fit it: {str(error).splitlines()[0]}")
            continue
        try:
            verification = compare_with_model(model, sites, samples, "float32")
            if not verification.holds:  # large logits lose digits in float32: look again in float64
                double = copy.deepcopy(model).double()
                verification = compare_with_model(
                    double, sites_of(double), inputs.samples(torch.float64), "float64"
                )
        except InvalidInput as error:
            problems.append(str(error))
            continue
        if verification.holds:
            return adapter_name, sites, verification
        problems.append(
            f"attention rebuilt by the adapter {adapter_name!r} differs from the model's own by "
            f"{verification.attention_error:.1e} (update: {verification.update_error:.1e}) in layer "
            f"{verification.worst_layer}, more than {TOLERANCE:.0e}{_reason(sites)}"
        )
    raise InvalidInput(f"{name} is refused: {problems[0]}")


def _reason(sites: Sequence[Site]) -> str:
    """What the names of a block say about a failed check: a hint only, never a ground to refuse."""
    names = {name.rsplit(".", 1)[-1].lower() for site in sites for name, _ in site.block.named_modules()}
    found = sorted(names & QUERY_NORMS)
    if not found:
        return ""
    return f"; it has {found[0]!r}: normalised queries or keys make logits that are no bilinear form s^T B s'"


def _head_count(config: Any) -> int:
    for attribute in ("num_attention_heads", "n_heads", "n_head"):
        count = getattr(config, attribute, None)
        if isinstance(count, int) and count > 0:
            return count
    kind = getattr(config, "model_type", "model")
    inside = [name for name in vars(config) if name.endswith("_config") and name != "quantization_config"]
    hint = f"; it joins several models ({', '.join(inside)}): pass one of them" if inside else ""
    raise InvalidInput(f"{kind} is no attention encoder: its config names no number of attention heads{hint}")


def _ranges(numbers: Sequence[int]) -> str:
    return (
        ", ".join(map(str, numbers))
        if len(numbers) <= 4
        else f"{numbers[0]}-{numbers[-1]} ({len(numbers)} of them)"
    )
