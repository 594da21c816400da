import matplotlib
import numpy as np
import pytest

import metastable as ms
from metastable.errors import InvalidInput
from metastable.report import snapshots
from metastable.report.snapshots import principal_axes, view_rotation


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


def test_view_is_a_rotation_that_looks_along_its_direction():
    rotation = view_rotation(25.0, 35.0)
    assert np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-14)
    assert np.linalg.det(rotation) == pytest.approx(1.0, abs=1e-14)
    assert np.allclose(view_rotation(90.0, 0.0)[2], [0, 0, 1], atol=1e-14)


def test_principal_axes_are_those_of_the_second_moment():
    x = np.diag([3.0, 1.0, 2.0])
    assert np.allclose(np.abs(principal_axes([x], np.full(3, 1 / 3))), [[1, 0], [0, 0], [0, 1]], atol=1e-14)
