"""How alike tokens become with depth, in a sentence."""

from __future__ import annotations

from metastable.audit.depth import GROWTH, course
from metastable.audit.finding import Finding, two_decimals
from metastable.audit.text import TextAudit


def depth_finding(text: TextAudit) -> Finding:
    """From the input of the first layer to the output of the last, and what lies in between.

    Hidden states are taken as the model hands them on, since the output has no norm in front of an attention.
    """
    points = text.depth
    word, outside = course(points)
    one = f"{'an' if text.item[0] in 'aeiou' else 'a'} {text.item}"
    told = {
        "rise": f"In the hidden states, tokens of {one} are more alike at the output than at the input",
        "fall": f"In the hidden states, tokens of {one} are less alike at the output than at the input",
        "same": f"In the hidden states, tokens of {one} are about as alike at the output as at the input",
        "open": f"Whether tokens of {one} are more alike at the output than at the input cannot be told from the "
        "hidden states",
    }[word]
    if outside is not None:
        most = "most" if points[outside].growth > max(0.0, points[-1].growth) else "least"
        told += f"; they are {most} alike in between, at the input of layer {outside}"
    cosines = ", ".join(two_decimals(p.mean_cosine) for p in points)
    return Finding(
        told + ".",
        f"mean cosine of hidden states at the input of layers 0-{len(points) - 2} and at the output: {cosines}; "
        f"from first to last {points[-1].growth:+.2f} ± {points[-1].growth_error:.2f} (standard error over "
        f"{text.texts} {text.item}s), asked {GROWTH:g} beyond two errors; effective rank "
        f"{', '.join(f'{p.effective_rank:.0f}' for p in points)}; mean cosine of the points that attention sees, "
        f"before the norms' gain and shift: {', '.join(two_decimals(l.point_cosine) for l in text.layers)}",
        "measured" if text.texts > 1 else "weak",
        "depth",
        {
            "cosine": [p.mean_cosine for p in points],
            "growth": [p.growth for p in points],
            "error": [p.growth_error for p in points],
            "effective_rank": [p.effective_rank for p in points],
            "course": word,
            "outside": outside,
        },
    )
