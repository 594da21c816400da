import matplotlib
import numpy as np
import pytest

import metastable as ms
from metastable.drawing import snapshots
from metastable.drawing.frames import MAX_DRAWN, draw_frames
from metastable.errors import InvalidInput


def short_path(d: int, n: int = 40) -> ms.Path:
    w = ms.AttentionWeights(V=np.eye(d), B=np.eye(d))
    return ms.solve(ms.SelfAttention(w, beta=2.0), ms.sphere.uniform(n, d, seed=1), t=1.0, times=5, rtol=1e-4)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_a_stem_gives_png_and_pdf(tmp_path, d):
    files = snapshots(short_path(d), tmp_path / "deep" / "tokens", title="Tokens")
    assert [file.suffix for file in files] == [".png", ".pdf"]
    assert files[0].read_bytes()[:4] == b"\x89PNG"
    assert files[1].read_bytes()[:4] == b"%PDF"


def test_a_suffix_gives_that_file_and_the_same_bytes_twice(tmp_path):
    path = short_path(2)
    first = snapshots(path, tmp_path / "a.pdf")
    second = snapshots(path, tmp_path / "b.pdf")
    assert first == (tmp_path / "a.pdf",)
    assert first[0].read_bytes() == second[0].read_bytes()


def test_an_unknown_suffix_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match=r"png, pdf, svg, got the suffix '\.bmp'"):
        snapshots(short_path(2), tmp_path / "tokens.bmp")


def test_the_style_of_the_caller_is_left_alone(tmp_path):
    before = dict(matplotlib.rcParams)
    snapshots(short_path(2), tmp_path / "tokens.png")
    assert dict(matplotlib.rcParams) == before


def test_bad_counts_and_empty_paths_are_refused(tmp_path):
    with pytest.raises(InvalidInput, match="count must be >= 1, got 0"):
        snapshots(short_path(2), tmp_path / "tokens.png", count=0)


def test_many_tokens_are_thinned(tmp_path):
    """Doubling the tokens beyond the limit does not double the dots: a PDF holds every dot."""
    sizes = []
    for n in (MAX_DRAWN, 2 * MAX_DRAWN):
        x = ms.sphere.uniform(n, 5, seed=0).numpy()
        (file,) = draw_frames([x], np.zeros(1), np.full(n, 1 / n), "Many", tmp_path / f"{n}.pdf")
        sizes.append(file.stat().st_size)
    assert sizes[1] < 1.2 * sizes[0]


@pytest.mark.parametrize(("path", "place"), [(None, "x.png"), (3, "x.png"), ([[]], None)])
def test_what_is_no_path_is_refused(path, place):
    with pytest.raises(InvalidInput):
        snapshots(path, place)
