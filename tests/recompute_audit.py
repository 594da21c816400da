"""An audit computed anew: from the model's own hidden states and attention, and from its stored matrices.

Nothing of metastable is imported. Matrices are dense, loops are plain, every start is iterated alone. `recompute`
returns the numbers of every finding by its name, as the report's JSON has them; `words` says what its sentence must
contain. Families: BERT (also without bias by position) and MPNet, whose scores have a bias by relative position.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

LENGTHS = (8, 16, 32, 64, 128, 256)
Array = np.ndarray


@dataclass
class Head:
    """Score matrix, field and value matrix of one head, centred: B, g, A; and what it reads and writes."""

    B: Array
    g: Array
    A: Array


@dataclass
class Block:
    """One layer: its heads, and s from the hidden state x = sqrt(d) gain s + shift."""

    heads: list[Head]
    gain: Array
    shift: Array

    def points(self, x: Array) -> Array:
        return (x - self.shift) / (math.sqrt(len(self.gain)) * self.gain)


def linear(module: Any) -> tuple[Array, Array]:
    return module.weight.detach().double().numpy(), module.bias.detach().double().numpy()


def parts(model: Any, layer: Any) -> tuple[Any, Any, Any, Any]:
    """The modules of queries, keys, values and output."""
    if model.config.model_type == "mpnet":
        own = layer.attention.attn
        return own.q, own.k, own.v, own.o
    own = layer.attention.self
    return own.query, own.key, own.value, layer.attention.output.dense


def blocks(model: Any) -> list[Block]:
    layers, count = list(model.encoder.layer), model.config.num_attention_heads
    found = []
    for l, layer in enumerate(layers):
        norm = model.embeddings.LayerNorm if l == 0 else layers[l - 1].output.LayerNorm
        gain, shift = linear(norm)
        (wq, bq), (wk, _), (wv, _), (wo, _) = (linear(m) for m in parts(model, layer))
        d = len(gain)
        r = d // count
        centre = np.eye(d) - 1 / d
        heads = []
        for h in range(count):
            rows = slice(h * r, (h + 1) * r)
            scale = 1 / math.sqrt(r)
            B = d * scale * np.diag(gain) @ wq[rows].T @ wk[rows] @ np.diag(gain)
            g = math.sqrt(d) * scale * gain * (wk[rows].T @ (wq[rows] @ shift + bq[rows]))
            A = wo[:, rows] @ wv[rows] @ np.diag(gain)
            heads.append(Head(centre @ B @ centre, centre @ g, centre @ A @ centre))
        found.append(Block(heads, gain, shift))
    return found


def run(model: Any, ids: Sequence[int]) -> tuple[list[Array], list[Array]]:
    """Hidden states (L + 1 of them) and attention probabilities of every layer, as the model returns them."""
    with torch.no_grad():
        row = torch.tensor([list(ids)])
        out = model(
            input_ids=row, attention_mask=torch.ones_like(row), output_hidden_states=True, output_attentions=True
        )
    return [x[0].double().numpy() for x in out.hidden_states], [p[0].double().numpy() for p in out.attentions]


def place_bias(model: Any, n: int) -> Array | None:
    if model.config.model_type != "mpnet":
        return None
    with torch.no_grad():
        return model.encoder.compute_position_bias(torch.zeros(1, n, 1))[0].double().numpy()


def lower_median(rows: Array) -> Array:
    """The lower of the two middle values, of every row."""
    return np.sort(rows, axis=-1)[..., (rows.shape[-1] - 1) // 2]


def participation(rows: Array) -> float:
    values = np.linalg.eigvalsh(np.cov(rows.T, bias=True))
    return float(values.sum() ** 2 / (values**2).sum())


def cosine(a: Array, b: Array) -> Array:
    return (a * b).sum(1) / np.maximum(np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1), 1e-300)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def dominant_space(matrix: Array) -> Array:
    """Orthonormal basis of the span of the first 2 to 10 eigenvectors by real part, pairs kept together."""
    d = len(matrix)
    k = max(2, min(10, d // 32))
    values, vectors = np.linalg.eig(matrix)
    columns: list[Array] = []
    for i in np.argsort(-values.real, kind="stable"):
        pair = abs(values[i].imag) > 0
        if pair and values[i].imag < 0:
            continue
        if len(columns) + 1 + pair > max(k, 1 + pair):
            break
        columns += [vectors[:, i].real, vectors[:, i].imag][: 1 + pair]
    return np.linalg.qr(np.stack(columns, axis=1))[0]


def kappa_and_dimension(block: Block, points: Sequence[Array]) -> tuple[float, float, float]:
    """Of one layer on some texts: kappa, d_eff and kappa / (d_eff - 1)."""
    kappas = [
        np.mean([lower_median(np.linalg.norm(s @ head.B + head.g, axis=1)) for s in points]) for head in block.heads
    ]
    kappa, d_eff = float(np.median(kappas)), float(np.mean([participation(s) for s in points]))
    return kappa, d_eff, kappa / (d_eff - 1)


def sinks(attention: Sequence[Sequence[Array]], l: int) -> Array:
    """Of every head the largest share of one token, mean over texts."""
    return np.mean(shares(attention, l), axis=0)


def shares(attention: Sequence[Sequence[Array]], l: int) -> Array:
    """The same of every text."""
    return np.array([p[l].mean(axis=1).max(axis=1) for p in attention])


def error(values: Array) -> Array:
    """Standard error of a mean over the first axis."""
    return np.std(values, axis=0, ddof=1) / math.sqrt(len(values))


def without_groups(texts: Sequence[Array]) -> float:
    """Standard error of the participation ratio: four groups of texts are left out in turn."""
    groups = min(4, len(texts))
    found = [participation(np.concatenate([x for i, x in enumerate(texts) if i % 4 != g])) for g in range(groups)]
    return math.sqrt((groups - 1) / groups * sum((f - np.mean(found)) ** 2 for f in found))


def weights_of_places(bias: Array | None, h: int, n: int) -> Array:
    return np.full((n, n), 1 / n) if bias is None else softmax(bias[h])


def one_step(block: Block, s: Array, p: Array, bias: Array | None) -> dict[str, float]:
    """Cosines of the four forecasts with the layer's own update, which the model's own attention gives."""
    n = len(s)
    total: dict[str, Array] = dict.fromkeys(("truth", "zero_temperature", "gaussian", "uniform", "argmax"), 0.0)
    for h, head in enumerate(block.heads):
        pull = s @ head.B + head.g
        scores = pull @ s.T
        logits = scores if bias is None else scores + bias[h]
        w = weights_of_places(bias, h, n)
        tilt = w * (1 + scores - (w * scores).sum(1, keepdims=True))
        attended = {
            "truth": p[h] @ s,
            "zero_temperature": pull / np.linalg.norm(pull, axis=1, keepdims=True),
            "gaussian": tilt @ s,
            "uniform": w @ s,
            "argmax": s[logits.argmax(1)],
        }
        for name, mean in attended.items():
            total[name] = total[name] + mean @ head.A.T
    return {name: float(cosine(total["truth"], total[name]).mean()) for name in total if name != "truth"}


def closed(name: str, q: Array, k: Array, v: Array, bias: Array | None) -> Array:
    """The attended values of one head under a closure, from its own queries, keys and values."""
    n = len(q)
    scores = q @ k.T
    places = np.zeros((n, n)) if bias is None else bias
    if name == "softmax":
        return softmax(scores + places) @ v
    if name == "none":
        return np.zeros_like(v)
    if name == "argmax":
        return v[(scores + places).argmax(1)]
    if name in ("mean", "gaussian"):
        w = softmax(places)
        factor = w if name == "mean" else w * (1 + scores - (w * scores).sum(1, keepdims=True))
        return factor @ v
    inner, ends = slice(1, n - 1), [0, n - 1]
    cloud = scores[:, inner]
    w = softmax(places[:, inner])
    middle = (w * cloud).sum(1, keepdims=True)
    log_cloud = middle + np.log(np.exp(places[:, inner]).sum(1, keepdims=True))
    if name == "gaussian_with_sinks":
        log_cloud = log_cloud + (w * (cloud - middle) ** 2).sum(1, keepdims=True) / 2
        w = w * (1 + cloud - middle)
    share = softmax(np.concatenate((scores[:, ends] + places[:, ends], log_cloud), axis=1))
    return share[:, :2] @ v[ends] + share[:, 2:] * (w @ v[inner])


def embedding(model: Any, first: Array, name: str) -> Array:
    """The pooled output with every attention replaced, block by block, from the input of layer 0."""
    x = first
    bias = place_bias(model, len(x))
    count = model.config.num_attention_heads
    for layer in model.encoder.layer:
        (wq, bq), (wk, bk), (wv, bv), (wo, bo) = (linear(m) for m in parts(model, layer))
        r = len(wq) // count
        q, k, v = x @ wq.T + bq, x @ wk.T + bk, x @ wv.T + bv
        heads = [
            closed(name, q[:, i] / math.sqrt(r), k[:, i], v[:, i], None if bias is None else bias[h])
            for h, i in ((h, slice(h * r, (h + 1) * r)) for h in range(count))
        ]
        update = np.concatenate(heads, axis=1) @ wo.T + bo
        norm = layer.attention.LayerNorm if model.config.model_type == "mpnet" else layer.attention.output.LayerNorm
        middle = normed(x + update, norm)
        (w1, b1), (w2, b2) = linear(layer.intermediate.dense), linear(layer.output.dense)
        inner = torch.nn.functional.gelu(torch.from_numpy(middle @ w1.T + b1)).numpy()
        x = normed(middle + inner @ w2.T + b2, layer.output.LayerNorm)
    pooled = x.mean(axis=0)
    return pooled / np.linalg.norm(pooled)


def normed(x: Array, norm: Any) -> Array:
    gain, shift = linear(norm)
    x = x - x.mean(1, keepdims=True)
    return x / np.sqrt((x**2).mean(1, keepdims=True) + norm.eps) * gain + shift


def looped(block: Block, start: Array, passes: int) -> list[Array]:
    """The tokens before and after every pass of attention, residual and norm through one layer."""
    frames = [start]
    for _ in range(passes):
        s = frames[-1]
        update = sum(softmax((s @ head.B + head.g) @ s.T) @ s @ head.A.T for head in block.heads)
        s = s + update
        frames.append(s / np.linalg.norm(s, axis=1, keepdims=True))
    return frames


def starts(l: int, points: Sequence[Sequence[Array]], d: int, seed: int) -> list[Array]:
    """16, 32, 64, 16, ... tokens spread over each of up to 16 texts; then random ones up to 24 starts."""
    found: list[Array] = []
    for i in torch.linspace(0, len(points) - 1, min(16, len(points))).round().long().tolist():
        s = points[i][l]
        fitting = [n for n in (16, 32, 64) if n <= min((16, 32, 64)[len(found) % 3], len(s))]
        if fitting:
            pick = torch.linspace(0, len(s) - 1, fitting[-1]).round().long().numpy()
            found.append(s[pick])
    texts = len(found)
    for i in range(24 - texts):
        drawn = torch.randn(
            (16, 32, 64)[i % 3], d, generator=torch.Generator().manual_seed(seed + 1000 * i), dtype=torch.float64
        ).numpy()
        found.append(drawn - drawn.mean(1, keepdims=True))
    return [s / np.linalg.norm(s, axis=1, keepdims=True) for s in found]


def energy(space: Array, frames: Sequence[Array]) -> Array:
    return np.array([((s @ space) ** 2).sum() / len(s) for s in frames])


def first_quarter(curve: Array) -> float:
    there = np.flatnonzero(curve >= 0.25)
    return float(there[0]) if len(there) else math.inf


def phases(
    layers: Sequence[Block],
    sums: Sequence[Array],
    points: Sequence[Sequence[Array]],
    told: dict[str, Any],
    seed: int,
) -> dict[str, Any]:
    """What becomes of every start of every looped layer."""
    L, d = len(layers), len(layers[0].gain)
    scaled = [[math.sqrt(d) / np.linalg.norm(head.B) * head.B for head in block.heads] for block in layers]
    products = [
        sum(h.A @ B.T for h, B in zip(b.heads, Bs, strict=True)) for b, Bs in zip(layers, scaled, strict=True)
    ]
    rematched = [
        sum(h.A @ B.T for h, B in zip(b.heads, Bs[-1:] + Bs[:-1], strict=True))
        for b, Bs in zip(layers, scaled, strict=True)
    ]
    spaces = [[dominant_space(m) for m in kind] for kind in (sums, products, rematched)]
    ratio = [
        np.linalg.eigvals(p).real.max() / np.linalg.eigvals(a).real.max()
        for a, p in zip(sums, products, strict=True)
    ]
    ends, other, first, control, undecided = [], [], [], [], []
    for l, block in enumerate(layers):
        counts = np.zeros(5 + L, dtype=int)
        for start, said in zip(starts(l, points, d, seed), told["loops"][l]["runs"], strict=True):
            frames = looped(block, start, said["passes"])
            a, m, r = (first_quarter(energy(kind[l], frames)) for kind in spaces)
            counts[0] += m < a
            counts[1] += r < a
            if said["end"] == "undecided":
                counts[2] += 1
                continue
            later = looped(block, frames[-1], 30)[-1:]  # settled: thirty more passes change nothing
            counts[3] += 1
            counts[4] += energy(spaces[0][l], later)[0] >= 0.95
            counts[5:] += [energy(space, later)[0] >= 0.95 for space in spaces[0]]
        first.append([int(counts[0]), 24])
        control.append([int(counts[1]), 24])
        undecided.append(int(counts[2]))
        ends.append([int(counts[4]), int(counts[3])])
        other.append([int(max(np.delete(counts[5:], l))), int(counts[3])])
    return {
        "terminal": {"ends": ends, "control": other, "undecided": undecided},
        "early": {"forecast": [l for l in range(L) if ratio[l] >= 3], "first": first, "control": control},
    }


def recompute(
    model: Any,
    texts: Sequence[Sequence[int]],
    told: dict[str, Any],
    seed: int = 0,
    loops: bool = True,
    cut: Callable[[Any, int], Any] = lambda ids, n: ids[:n],
) -> dict[str, Any]:
    """The numbers of every finding; told: the report's JSON, of which only the passes of every start are used.

    loops: whether layers are iterated, too, which takes minutes for a real model. cut: a text after n tokens.
    """
    layers = blocks(model)
    L, H, d = len(layers), len(layers[0].heads), len(layers[0].gain)
    ran = [run(model, ids) for ids in texts]
    states, attention = [s for s, _ in ran], [p for _, p in ran]
    points = [[block.points(x) for block, x in zip(layers, text[:-1], strict=True)] for text in states]
    by_layer = [[text[l] for text in points] for l in range(L)]
    found: dict[str, Any] = {}

    gaps = []
    for text, own in zip(points, attention, strict=True):
        bias = place_bias(model, len(text[0]))
        for l, block in enumerate(layers):
            logits = np.stack([(text[l] @ head.B + head.g) @ text[l].T for head in block.heads])
            gaps.append(np.abs(softmax(logits if bias is None else logits + bias) - own[l]).max())
    found["rebuilt"] = {"attention_error": float(max(gaps)), "longest": max(map(len, texts)), "layers": L}

    ratios = [kappa_and_dimension(block, by_layer[l]) for l, block in enumerate(layers)]
    steps = [
        [one_step(block, text[l], own[l], place_bias(model, len(text[l]))) for l, block in enumerate(layers)]
        for text, own in zip(points, attention, strict=True)
    ]
    names = ("gaussian", "argmax", "uniform", "zero_temperature")
    cosines = [{name: float(np.mean([step[l][name] for step in steps])) for name in names} for l in range(L)]
    reached = [n for n in LENGTHS if 2 * sum(len(ids) >= n for ids in texts) >= len(texts)]
    long = [ids for ids in texts if reached and len(ids) >= reached[-1]]
    curve_ratio, curve_sinks = [], []
    for n in reached:
        short = [run(model, cut(ids, n)) for ids in long[:8]]
        seen = [[block.points(x) for block, x in zip(layers, s[:-1], strict=True)] for s, _ in short]
        curve_ratio.append([kappa_and_dimension(block, [s[l] for s in seen])[2] for l, block in enumerate(layers)])
        curve_sinks.append(sum(int((sinks([p for _, p in short], l) >= 0.25).sum()) for l in range(L)))
    kappa_ratio = [r for _, _, r in ratios]
    mean_zero = float(np.mean([c["zero_temperature"] for c in cosines]))
    found["temperature"] = {
        "length": sum(map(len, texts)) / len(texts),
        "kappa": [k for k, _, _ in ratios],
        "ratio": kappa_ratio,
        "cosine": mean_zero,
        "verdict": "cold" if min(kappa_ratio) > 3 else "warm" if max(kappa_ratio) < 1 / 3 else "between",
        "reached": mean_zero >= 0.9,
        "lengths": reached,
        "ratio_over_length": curve_ratio,
    }
    overall = {name: float(np.mean([c[name] for c in cosines])) for name in names}
    best = max(names, key=lambda name: overall[name])
    plain = overall["uniform"] >= overall[best] - 0.02
    best = "uniform" if plain else best
    found["forecast"] = {
        "best": best,
        "cosine": overall,
        "best_in": sum(c[best] >= max(c.values()) - 0.02 * plain for c in cosines),
        "layers": L,
    }
    own_embedding = [x[-1].mean(0) / np.linalg.norm(x[-1].mean(0)) for x in states]
    closures = {
        name: float(
            np.mean([embedding(model, x[0], name) @ own for x, own in zip(states, own_embedding, strict=True)])
        )
        for name in ("gaussian_with_sinks", "mean_with_sinks", "argmax", "gaussian", "mean", "none")
    }
    fair = {name: closures[name] for name in ("gaussian_with_sinks", "mean_with_sinks", "argmax")}
    found["closures"] = {
        "cosine": closures,
        "best": [name for name, value in fair.items() if value >= max(fair.values()) - 0.02],
    }
    found["sinks"] = {
        "heads": sum(int((sinks(attention, l) >= 0.25).sum()) for l in range(L)),
        "of": L * H,
        "lengths": reached,
        "over_length": curve_sinks,
        "on_others": [
            sum(int((x.mean(0) + way * error(x) >= 0.25).sum()) for x in (shares(attention, l) for l in range(L)))
            for way in (-math.sqrt(8), math.sqrt(8))
        ],
    }

    copies = suppresses = agree = 0
    directions, errors = [], []
    copies_on_others, suppresses_on_others = [0, 0], [0, 0]
    for l, block in enumerate(layers):
        updates = []
        for text, own in zip(points, attention, strict=True):
            updates.append(sum(own[l][h] @ text[l] @ head.A.T for h, head in enumerate(block.heads)))
        directions.append(participation(np.concatenate(updates)))
        errors.append(without_groups(updates))
        for h, head in enumerate(block.heads):
            per_text = [
                float(cosine(own[l][h] @ text[l], own[l][h] @ text[l] @ head.A.T).mean())
                for text, own in zip(points, attention, strict=True)
            ]
            middle, spread = np.mean(per_text), float(error(np.array(per_text)))
            least = max(2 / math.sqrt(d - 1), 2 * spread)
            for i, way in enumerate((-math.sqrt(8), math.sqrt(8))):
                copies_on_others[i] += int(middle + way * spread > least)
                suppresses_on_others[i] += int(-middle + way * spread > least)
            if abs(middle) > least:
                copies, suppresses = copies + (middle > 0), suppresses + (middle < 0)
                agree += (np.trace(head.A @ head.B.T) > 0) == (middle > 0)
    found["copying"] = {
        "copies": int(copies),
        "suppresses": int(suppresses),
        "of": L * H,
        "trace_agrees": int(agree),
        "copies_on_others": copies_on_others,
        "suppresses_on_others": suppresses_on_others,
    }
    found["directions"] = {"directions": directions, "error": errors, "tokens": sum(map(len, texts))}

    alike = np.array([[pairs(x) for x in text] for text in states])
    growth = alike - alike[:, :1]
    found["depth"] = {
        "cosine": alike.mean(0).tolist(),
        "growth": growth.mean(0).tolist(),
        "error": (growth.std(0, ddof=1) / math.sqrt(len(texts))).tolist(),
    }
    last, spread = found["depth"]["growth"][-1], found["depth"]["error"][-1]
    word = "same" if abs(last) + 2 * spread <= 0.05 else "open"
    if abs(last) - 2 * spread > 0.05:
        word = "rise" if last > 0 else "fall"
    found["depth"]["course"] = word

    sums = [sum(head.A for head in block.heads) for block in layers]
    if loops:
        found |= phases(layers, sums, points, told, seed)
    matched = 0
    for block in layers:
        table = np.array(
            [[abs(np.trace(a.A @ b.B.T)) / np.linalg.norm(b.B) for b in block.heads] for a in block.heads]
        )
        matched += int((table.argmax(1) == np.arange(H)).sum())
    found["matching"] = {"heads": matched, "of": L * H}
    found["stable_rank"] = {
        "stable_rank": [float((a**2).sum() / np.linalg.norm(a, 2) ** 2) for a in sums],
        "d": d,
    }
    return found


def pairs(x: Array) -> float:
    """Mean cosine between two different tokens."""
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    return float((unit @ unit.T)[~np.eye(len(x), dtype=bool)].mean())


def words(found: dict[str, Any]) -> dict[str, list[str]]:
    """What the sentence of every finding must contain, from the numbers computed here."""
    rule: dict[str, Callable[[dict[str, Any]], list[str]]] = {
        "rebuilt": lambda n: [f"up to {n['longest']} tokens long"],
        "temperature": lambda n: [
            f"At {n['length']:.0f} tokens",
            {"cold": "cold by the size", "warm": "warm in every", "between": "neither cold nor warm"}[n["verdict"]],
        ],
        "forecast": lambda n: [
            {
                "gaussian": "Gaussian tilt",
                "argmax": "(argmax)",
                "uniform": "uniform attention",
                "zero_temperature": "zero-temperature limit",
            }[n["best"]]
        ],
        "closures": lambda n: [n["best"][0].replace("_", " ")],
        "sinks": lambda n: [
            f"{n['heads'] or 'none'} of {n['of']} heads ({between(n['on_others'])} on other such texts)",
            f"{n['over_length'][0]} at {n['lengths'][0]} tokens and {n['over_length'][-1]} at {n['lengths'][-1]}",
        ],
        "copying": lambda n: [
            f"{n['copies']} of {n['of']} heads ({between(n['copies_on_others'])} on other such texts) copy",
            f", {n['suppresses']} ({between(n['suppresses_on_others'])}) suppress",
        ],
        "directions": lambda n: [f"{min(n['directions']):.0f}", f"{max(n['directions']):.0f}"],
        "depth": lambda n: [
            {
                "rise": "more alike at the output",
                "fall": "less alike",
                "same": "about as alike",
                "open": "cannot be told",
            }[n["course"]]
        ],
        "terminal": lambda n: ["Iterated alone"],
        "early": lambda n: ["The weights forecast" if n["forecast"] else "No layer is forecast"],
        "matching": lambda n: [f"In {n['heads']} of {n['of']} heads"],
        "stable_rank": lambda n: [f"{min(n['stable_rank']):.0f}", f"{max(n['stable_rank']):.0f} out of {n['d']}"],
    }
    return {name: rule[name](numbers) for name, numbers in found.items()}


def between(ends: Sequence[int]) -> str:
    return f"{ends[0]} to {ends[1]}" if ends[0] != ends[1] else str(ends[0])


def denied(told: dict[str, Any], other: dict[str, Any]) -> dict[str, str]:
    """Of the findings of one audit those that an audit on other texts of the same kind denies, and why.

    told, other: the numbers of findings by name. A sentence that names a word (cold, gaussian, rise, ...) is denied
    by another word; one that counts heads says the range for other texts; directions have errors; a verdict on a
    layer is denied by the contrary one and not by "cannot be told"; what weights alone decide must be the same.
    """

    def outside(name: str, key: str, ends: str) -> str:
        low, high = told[name][ends]
        return "" if low <= other[name][key] <= high else f"{other[name][key]} {key}, not {low} to {high}"

    def contrary(name: str) -> str:
        if name == "terminal":
            one, two = told[name]["layers"], other[name]["layers"]
            against = set(one["yes"]) & set(two["no"]) | set(one["no"]) & set(two["yes"])
        else:
            pairs = enumerate(zip(told[name]["early"], other[name]["early"], strict=True))
            against = {l for l, (a, b) in pairs if None not in (a, b) and a != b}
        return f"layers {sorted(against)}" if against else ""

    def elsewhere(name: str) -> str:
        """Three degrees of freedom on either side: Student's 95% for six is 2.45 errors of the difference."""
        rows = zip(*(x[name][key] for x in (told, other) for key in ("directions", "error")), strict=True)
        far = [l for l, (a, e, b, f) in enumerate(rows) if abs(a - b) > max(2.45 * math.hypot(e, f), 0.1 * a)]
        return f"layers {far}" if far else ""

    def word(name: str, *keys: str) -> str:
        return "".join(f"{key} {other[name][key]}" for key in keys if told[name][key] != other[name][key])

    def not_among(name: str) -> str:
        return "" if set(told[name]["best"]) & set(other[name]["best"]) else f"best {other[name]['best']}"

    rule: dict[str, Callable[[], str]] = {
        "rebuilt": lambda: "" if other["rebuilt"]["attention_error"] <= 1e-5 else "not rebuilt",
        "temperature": lambda: word("temperature", "verdict", "reached"),
        "forecast": lambda: "" if told["forecast"]["best"] in best_of(other["forecast"]) else "another is best",
        "closures": lambda: not_among("closures"),
        "sinks": lambda: outside("sinks", "heads", "on_others"),
        "copying": lambda: (
            outside("copying", "copies", "copies_on_others")
            + outside("copying", "suppresses", "suppresses_on_others")
        ),
        "directions": lambda: elsewhere("directions"),
        "depth": lambda: "" if "open" in (x["depth"]["course"] for x in (told, other)) else word("depth", "course"),
        "terminal": lambda: contrary("terminal"),
        "early": lambda: contrary("early") or word("early", "forecast"),
        "matching": lambda: word("matching", "heads"),
        "stable_rank": lambda: word("stable_rank", "stable_rank"),
    }
    return {name: why for name in told if (why := rule[name]())}


def best_of(forecast: dict[str, Any]) -> list[str]:
    """The forecast that is best, and those that tie with it."""
    return [forecast["best"], *forecast["alike"]]
