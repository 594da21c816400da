import subprocess
import sys

import pytest

from metastable.drawing import Series, Trend, shaded
from metastable.drawing.figures import caption
from metastable.errors import InvalidInput
from sample_figures import figures, lines


def test_a_family_goes_from_light_to_dark():
    made = shaded([([0], [k]) for k in range(3)], ["a", "b", "c"], "dashed")
    assert [(one.label, one.style, one.shade) for one in made] == [
        ("a", "dashed", 0.0),
        ("b", "dashed", 0.5),
        ("c", "dashed", 1.0),
    ]
    assert [one.shade for one in shaded([([0], [1])], ["alone"])] == [0.0]
    assert shaded([([0], [k]) for k in range(2)], ["a", "b"], darkest=4)[1].shade == 0.25
    with pytest.raises(InvalidInput, match="curves must be 2 pairs"):
        shaded([([0], [1])], ["one", "too many"])


def test_a_series_that_cannot_be_drawn_is_refused_where_it_is_made():
    with pytest.raises(InvalidInput, match="unknown style 'wavy'; choose from line, dashed"):
        Series([0], [1], "a", "wavy")
    with pytest.raises(InvalidInput, match="hollow needs a value for each of the 2 points, got 1"):
        Series([0, 1], [1, 2], "a", "marked", hollow=[True])


def test_captions_say_what_is_drawn_against_what():
    assert caption(lines()) == "Curves: value against time t"
    assert all(caption(figure) for figure in figures().values())
    assert caption(Trend([None, 1.0, float("nan"), 3.5])) == "from 1 to 3.5"
    assert caption(Trend([None])) == ""


def test_figures_are_described_without_the_libraries_that_draw_them():
    heavy = ("matplotlib", "plotly", "jinja2", "joblib", "rich")
    check = f"import sys, metastable.drawing, metastable.papers; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("curves", "labels"), [(3, ["a"]), ([([0], [1])], "a"), ([([0], [1])], ["a", "b"]), ([3], ["a"]), (None, None)]
)
def test_families_that_do_not_fit_are_refused(curves, labels):
    with pytest.raises(InvalidInput):
        shaded(curves, labels)
