import matplotlib
import pytest

from metastable.drawing.canvas import FORMATS, canvas, save
from metastable.errors import InvalidInput


@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_the_same_drawing_gives_the_same_bytes(tmp_path, suffix):
    for name in ("a", "b"):
        with canvas() as figure:
            figure.add_subplot().plot([0, 1], [1, 2])
            (file,) = save(figure, tmp_path / f"{name}.{suffix}")
    assert file.read_bytes() == (tmp_path / f"a.{suffix}").read_bytes()


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_is_written_without_a_date(tmp_path, suffix):
    with canvas() as figure:
        (file,) = save(figure, tmp_path / f"a.{suffix}")
    content = file.read_bytes()
    assert content and b"CreationDate" not in content and b"<dc:date>" not in content


def test_a_stem_with_a_folder_that_is_not_there_gives_png_and_pdf(tmp_path):
    with canvas() as figure:
        files = save(figure, tmp_path / "new" / "picture")
    assert [f.relative_to(tmp_path).as_posix() for f in files] == ["new/picture.png", "new/picture.pdf"]
    assert all(f.exists() for f in files)


def test_an_unknown_suffix_is_refused_before_anything_is_written(tmp_path):
    with canvas() as figure, pytest.raises(InvalidInput, match=r"png, pdf, svg, got the suffix '\.bmp'"):
        save(figure, tmp_path / "new" / "picture.bmp")
    assert not (tmp_path / "new").exists()


def test_the_style_holds_inside_the_block_only():
    before = matplotlib.rcParams["font.size"]
    with canvas():
        assert matplotlib.rcParams["font.size"] == 9
    assert matplotlib.rcParams["font.size"] == before
