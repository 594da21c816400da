import matplotlib
import numpy as np
import pytest
import torch

import metastable as ms
from metastable.drawing import dominant_axes, snapshots
from metastable.drawing.frames import MAX_DRAWN, draw_frames, eventful
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


def test_frames_are_chosen_where_things_happen():
    w = ms.AttentionWeights(V=[[2.0, 0.0], [0.0, 1.0]], B=[[1.0, 0.0], [0.0, 1.0]])
    path = ms.solve(ms.SelfAttention(w, 4.0), ms.sphere.uniform(30, 2, seed=1), 40.0, times=41)
    chosen = eventful(path, 6)
    assert chosen[0] == 0 and chosen[-1] == 40 and len(chosen) == 6
    assert (np.diff(chosen)[:2] < np.diff(chosen)[-1]).all()  # tokens move in the beginning
    still = ms.solve(ms.SelfAttention(w, 4.0), [[1.0, 0.0]] * 3, 1.0, times=11)
    assert eventful(still, 3).tolist() == [0, 5, 10]
    assert eventful(still, 50).tolist() == list(range(11))


@pytest.mark.parametrize("d", [2, 3, 4])
def test_directions_are_marked(d, tmp_path):
    w = ms.AttentionWeights(V=torch.diag(torch.arange(1.0, d + 1)), B=torch.diag(torch.arange(d, 0.0, -1) ** 3))
    path = ms.solve(ms.SelfAttention(w, 4.0), ms.sphere.uniform(30, d, seed=1), 1.0, times=3)
    marked = dominant_axes(ms.theory.spectrum(w))
    assert len(marked) == 2
    snapshots(path, tmp_path / "marked.pdf", axes=marked)
    snapshots(path, tmp_path / "plain.pdf")
    assert (tmp_path / "marked.pdf").read_bytes() != (tmp_path / "plain.pdf").read_bytes()


@pytest.mark.parametrize(("path", "place"), [(None, "x.png"), (3, "x.png"), ([[]], None)])
def test_what_is_no_path_is_refused(path, place):
    with pytest.raises(InvalidInput):
        snapshots(path, place)
