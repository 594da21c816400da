import pytest

from metastable.errors import InvalidInput
from metastable.theory.assumptions import Assumption, phase_sentence


def test_each_situation_has_its_sentence():
    said = {"delta": None, "stay": False, "narrow": True, "angle": 1.0}
    assert "proportional to beta" in phase_sentence("itself", **said | {"delta": 0.2})
    assert "their antipodes" in phase_sentence("antipode", **said | {"delta": 0.2})
    assert "changes sign" in phase_sentence("neither", **said)
    assert "does not end" in phase_sentence("itself", **said | {"stay": True})
    assert "does not end" in phase_sentence("antipode", **said | {"stay": True})
    assert "keep a width" in phase_sentence("itself", **said | {"narrow": False})
    assert "angle 1" in phase_sentence("itself", **said) and "log beta" in phase_sentence("antipode", **said)


@pytest.mark.parametrize("given", [(1, True, "x"), ("a", "yes", "x"), ("a", True, None)])
def test_an_assumption_is_words_and_a_flag(given):
    with pytest.raises(InvalidInput):
        Assumption(*given)
