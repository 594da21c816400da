import pytest


@pytest.fixture
def marks(tmp_path, monkeypatch):
    """How often the experiment `counted` has run."""
    monkeypatch.setenv("METASTABLE_TEST_MARKS", str(tmp_path))
    return lambda: len((tmp_path / "marks").read_text()) if (tmp_path / "marks").exists() else 0
