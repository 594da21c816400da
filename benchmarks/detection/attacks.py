"""Changes that are optimised against the encoder itself, by the gradient of its embedding (HotFlip).

Both move the embedding e of a text towards the embedding e' of a text of another kind, which is what an attacker of
a search or a filter wants: they raise cos(e, e') by swapping tokens i -> w with large (E_w - E_i) . dcos/dE_i.
"""

from __future__ import annotations

import random
import re
from typing import Any

import torch
from torch import Tensor

from detection.shifts import SHARE, Cutter

ROUNDS = 3
"""Gradients per text; in each a part of the positions is flipped."""


def flipped_words(encoder: Any, texts: list[str], targets: list[str], seed: int, share: float = 0.1) -> list[str]:
    """`share` of the words of every text swapped for the words that move the embedding most towards the target."""
    return [
        _attack(encoder, text, target, random.Random(f"{seed} flip {i}"), share=share)
        for i, (text, target) in enumerate(zip(texts, targets, strict=True))
    ]


def optimised_suffixes(encoder: Any, texts: list[str], targets: list[str], seed: int) -> list[str]:
    """The last tokens of every text replaced by a suffix of words that is optimised towards the target."""
    cutter = Cutter(encoder.tokenizer)
    attacked = []
    for i, (text, target) in enumerate(zip(texts, targets, strict=True)):
        rng = random.Random(f"{seed} suffix {i}")
        n = cutter.count(text)
        k = max(8, round(SHARE * n))
        words, _ = _words(encoder.tokenizer)
        kept = cutter.cut(text, n - k) + " "
        begun = kept + " ".join(rng.choice(words) for _ in range(k))
        attacked.append(_attack(encoder, begun, target, rng, after=len(kept)))
    return attacked


def _attack(encoder: Any, text: str, target: str, rng: random.Random, share: float = 1.0, after: int = 0) -> str:
    tokenizer, model = encoder.tokenizer, encoder.model
    aim = encoder.embed([target])[0].float()
    words, ids = _words(tokenizer)
    table = model.get_input_embeddings().weight.detach()
    candidates = table[ids]
    count, done = None, set()
    for _ in range(ROUNDS):
        read = tokenizer(text, return_offsets_mapping=True, truncation=True, max_length=256, verbose=False)
        tokens, spans = torch.tensor(read["input_ids"]), read["offset_mapping"]
        open_ = [
            i for i, (a, b) in enumerate(spans) if a >= after and re.fullmatch(r"[A-Za-z]{3,}", _word(text, a, b))
        ]
        if count is None:
            count = max(1, round(share * len(open_)))
        gradient = _gradient(model, tokens, aim)
        gain, best = (
            gradient[open_] @ candidates.T - (gradient[open_] * table[tokens[open_]]).sum(1)[:, None]
        ).max(1)
        order = [j for j in gain.argsort(descending=True).tolist() if after or spans[open_[j]][0] not in done]
        part = order[: -(-count // ROUNDS)] if after == 0 else rng.sample(order, -(-len(order) // 2))
        for j in sorted(part, key=lambda j: -spans[open_[j]][0]):
            begin, end = spans[open_[j]]
            new = words[int(best[j])]
            text = text[:begin] + new + text[end:]
            done = {d + len(new) - (end - begin) if d > begin else d for d in done} | {begin}
        if after == 0 and len(done) >= count:
            break
    return text


def _word(text: str, begin: int, end: int) -> str:
    """The token, if it is a whole word; else nothing."""
    inside = text[max(0, begin - 1) : begin].isalnum() or text[end : end + 1].isalnum()
    return "" if inside else text[begin:end]


def _gradient(model: Any, tokens: Tensor, aim: Tensor) -> Tensor:
    embedded = model.get_input_embeddings()(tokens[None]).detach().requires_grad_(True)
    output = model(inputs_embeds=embedded, attention_mask=torch.ones_like(tokens)[None])
    pooled = output.last_hidden_state[0].mean(dim=0)
    torch.nn.functional.cosine_similarity(pooled, aim, dim=0).backward()
    return embedded.grad[0]


def _words(tokenizer: Any) -> tuple[list[str], Tensor]:
    found = sorted((w, i) for w, i in tokenizer.get_vocab().items() if re.fullmatch(r"[a-z]{3,}", w))
    return [w for w, _ in found], torch.tensor([i for _, i in found])
