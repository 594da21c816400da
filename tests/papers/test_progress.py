from dataclasses import replace

from metastable.papers import Outcome
from metastable.papers.progress import progress_bar
from sample_claims import COUNTED


def test_every_verdict_is_a_line_on_standard_error(capsys):
    verdict = COUNTED.judge(Outcome(1.0), seconds=2.25)
    with progress_bar(True, 2) as advance:
        advance(verdict)
        advance(replace(verdict, claim="other", resumed=True))
    told = capsys.readouterr()
    assert told.out == ""
    assert "holds counted (2.2 s)" in told.err and "holds other (stored)" in told.err


def test_nothing_is_shown_when_nobody_asked(capsys):
    with progress_bar(False, 1) as advance:
        advance(COUNTED.judge(Outcome(2.0)))
    assert capsys.readouterr() == ("", "")
