"""A SentenceTransformer in production with a monitor beside it: calibrate once, attach, embed as always.

    pip install sentence-transformers
    python examples/monitor_sentence_transformer.py MODEL CORPUS TRAFFIC

MODEL: a SentenceTransformer folder or id. CORPUS: a text file with texts as they should be, one per paragraph, at
least a few hundred. TRAFFIC: a text file with what comes in. The embeddings stay what they are, bit by bit.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sentence_transformers import SentenceTransformer

import metastable as ms


def paragraphs(path: str) -> list[str]:
    return [" ".join(part.split()) for part in Path(path).read_text().split("\n\n") if part.strip()]


def main(name: str, corpus: str, traffic: str) -> None:
    model = SentenceTransformer(name)
    monitor = ms.Monitor.calibrate(ms.encoders.load(model), paragraphs(corpus))
    monitor.save("calibration.npz")  # later: ms.Monitor.load("calibration.npz")
    with monitor.attach(model, on_score=lambda score: score.alarm and print(score.sentence())) as attached:
        embeddings = model.encode(paragraphs(traffic))
    print(f"{len(embeddings)} embeddings; {attached}; {attached.stream}")


if __name__ == "__main__":
    main(*sys.argv[1:])
