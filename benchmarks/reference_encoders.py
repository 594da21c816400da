"""Measure known encoders, and store their numbers in the package for `metastable audit` to read others against.

    python benchmarks/reference_encoders.py NAME=PATH[,TOKENIZER] ...

NAME is what the table calls the encoder; PATH is what `metastable.encoders.load` opens. A text encoder reads the
paragraphs of tests/audit/prose.txt; one whose vocabulary has fewer than 100 words is taken for one of proteins and
reads the antibody domains below. A model that cannot be opened is told and left out.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from metastable.audit import audit, read_corpus
from metastable.audit.corpus import Corpus
from metastable.audit.reference_values import STORED, ReferenceEncoder
from metastable.encoders import load
from metastable.errors import MetastableError

ROOT = Path(__file__).resolve().parent.parent
PROSE = ROOT / "tests" / "audit" / "prose.txt"
PLACE = ROOT / "src" / "metastable" / "audit" / STORED
ANTIBODIES = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYCSRWGGDGFYAMDYW",
    "DIQMTQSPSSLSASVGDRVTITCRASQDVNTAVAWYQQKPGKAPKLLIYSASFLYSGVPSRFSGSRSGTDFTLTISSLQPEDFATYYCQQHYTTPPTFGQGTKVEIK",
    "EVQLVESGGGLVQPGRSLRLSCAASGFTFDDYAMHWVRQAPGKGLEWVSAITWNSGHIDYADSVEGRFTISRDNAKNSLYLQMNSLRAEDTAVYYCAKVSYLSTASSLDYW",
    "DIQMTQSPSSLSASVGDRVTITCRASQGIRNYLAWYQQKPGKAPKLLIYAASTLQSGVPSRFSGSGSGTDFTLTISSLQPEDVATYYCQRYNRAPYTFGQGTKVEIK",
    "QVQLQQPGAELVKPGASVKMSCKASGYTFTSYNMHWVKQTPGRGLEWIGAIYPGNGDTSYNQKFKGKATLTADKSSSTAYMQLSSLTSEDSAVYYCARSTYYGGDWYFNVW",
)
"""Variable domains of trastuzumab (heavy, light), adalimumab (heavy, light) and rituximab (heavy)."""
TOKENS = 128


def main(arguments: list[str]) -> None:
    """Measure the encoders that are named, keep the others that are stored."""
    stored = {row["name"]: row for row in json.loads(PLACE.read_text(encoding="utf-8"))}
    for argument in arguments:
        name, _, place = argument.partition("=")
        path, _, tokenizer = place.partition(",")
        try:
            encoder = load(path, tokenizer=tokenizer or None)
            proteins = encoder.inputs.vocabulary < 100
            spaced = [" ".join(domain) for domain in ANTIBODIES]
            corpus = Corpus(spaced, len(spaced)) if proteins else read_corpus(PROSE, max_tokens=TOKENS)
            report = audit(encoder, corpus, max_tokens=TOKENS, loop_steps=1)
        except MetastableError as error:
            print(f"{name} is left out: {error}")
            continue
        read = "variable domains of antibodies" if proteins else "English prose"
        stored[name] = asdict(ReferenceEncoder.of(name, read, report))
        print(name, stored[name]["values"])
    PLACE.write_text(json.dumps(list(stored.values()), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
