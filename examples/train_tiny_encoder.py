"""Train a tiny encoder from nothing and watch its attention change: a series of audits along one training.

A four-head, three-layer BERT (d = 64) learns to fill in masked words of a small language made here: sentences with
agreement over a distance ("the red boats near the old harbour wait"), so that attention has something to find. The
weights are saved at a few steps, and `audit_series` says how spectra, temperature, forecasts and phases moved.

    python examples/train_tiny_encoder.py --out tiny_training     # minutes on two cores; needs metastable[encoders]

The last lines print what moved; tiny_training/series.html shows it. The checkpoints carry their vocabulary, so the
command line can look at them too:

    metastable audit --series tiny_training/step-* --text tiny_training/sentences.txt --out series.html
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import torch
import transformers
from transformers import BertConfig, BertForMaskedLM

from metastable.audit import audit_series
from metastable.encoders import load

NOUNS = ["boat", "house", "river", "teacher", "engine", "garden", "letter", "window", "cloud", "singer"]
ADJECTIVES = ["red", "old", "small", "quiet", "bright", "heavy", "new", "strange"]
PLACES = ["harbour", "hill", "market", "station", "bridge", "field"]
VERBS = [("waits", "wait"), ("falls", "fall"), ("sings", "sing"), ("turns", "turn"), ("shines", "shine")]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LITTLE = ["the", "near", "and", "while", "not", "far", "from"]
WORDS = [
    *SPECIAL,
    *LITTLE,
    *NOUNS,
    *(n + "s" for n in NOUNS),
    *ADJECTIVES,
    *PLACES,
    *(v for pair in VERBS for v in pair),
]
INDEX = {word: i for i, word in enumerate(WORDS)}
LENGTH = 24


def clause(rng: random.Random) -> list[str]:
    """The verb agrees with the first noun, however far the place pushes it away."""
    plural = rng.random() < 0.5
    noun = rng.choice(NOUNS) + ("s" if plural else "")
    words = ["the", rng.choice(ADJECTIVES), noun]
    for _ in range(rng.randint(0, 2)):
        words += [rng.choice(["near", "far"])]
        words += ["from"] if words[-1] == "far" else []
        words += ["the", rng.choice(ADJECTIVES), rng.choice(PLACES)]
    return [*words, rng.choice(VERBS)[1 if plural else 0]]


def sentence(rng: random.Random) -> list[str]:
    """The words of one or two clauses, as many as fit between [CLS] and [SEP]."""
    words = clause(rng)
    if rng.random() < 0.5:
        words += [rng.choice(["and", "while"]), *clause(rng)]
    return words[: LENGTH - 2]


def token_ids(words: list[str]) -> list[int]:
    return [INDEX[w] for w in ["[CLS]", *words, "[SEP]"]]


def batch(rng: random.Random, size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Masked ids, attention mask and labels (-100 where nothing is asked)."""
    ids = torch.zeros(size, LENGTH, dtype=torch.long)
    for i in range(size):
        row = token_ids(sentence(rng))
        ids[i, : len(row)] = torch.tensor(row)
    seen = (ids != 0).long()
    chosen = (torch.tensor([[rng.random() for _ in range(LENGTH)] for _ in range(size)]) < 0.2) & (ids > 4)
    labels = torch.where(chosen, ids, -100)
    return torch.where(chosen, INDEX["[MASK]"], ids), seen, labels


def train(
    steps: int, saves: list[int], seed: int
) -> tuple[BertForMaskedLM, dict[int, dict[str, torch.Tensor]], list[float]]:
    """Train with Adam and keep a copy of the weights at every step in `saves`."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertForMaskedLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 50) * max(0.05, 1 - s / steps))
    kept: dict[int, dict[str, torch.Tensor]] = {}
    losses: list[float] = []
    for step in range(steps + 1):
        if step in saves:
            kept[step] = {k: v.clone() for k, v in model.state_dict().items()}
            recent = losses[-20:]
            print(f"step {step:5d}" + (f"   loss {sum(recent) / len(recent):.3f}" if recent else "   untrained"))
        ids, seen, labels = batch(rng, 64)
        loss = model(input_ids=ids, attention_mask=seen, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        warm.step()
        losses.append(float(loss.detach()))
    return model, kept, losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("tiny_training"))
    options = parser.parse_args()
    saves = sorted({0, *(round(options.steps * share) for share in (0.05, 0.2, 0.5, 1.0))})
    transformers.utils.logging.disable_progress_bar()
    model, kept, _ = train(options.steps, saves, options.seed)
    rng = random.Random(options.seed + 1)
    sentences = [sentence(rng) for _ in range(24)]
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "sentences.txt").write_text("\n".join(" ".join(words) for words in sentences) + "\n")
    encoders = []
    for step in saves:
        model.load_state_dict(kept[step])
        folder = options.out / f"step-{step:05d}"
        model.save_pretrained(folder)
        (folder / "vocab.txt").write_text("\n".join(WORDS))
        encoders.append(load(folder))
    texts = [token_ids(words) for words in sentences]
    series = audit_series(encoders, texts, names=[f"step {s}" for s in saves], report=lambda line: None)
    page = series.save(options.out / "series.html")
    print("\n".join(series.sentences()))
    print(f"wrote {page}")


if __name__ == "__main__":
    main()
