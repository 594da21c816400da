"""The example in the README runs."""

import re
from pathlib import Path


def test_the_example_runs(capsys):
    text = (Path(__file__).parents[1] / "README.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(example.strip().splitlines()) <= 10
    exec(compile(example, "README.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    near_E, near_V = (re.search(r"to E: ([\d.]+) .* of V: ([\d.]+)", lines[i]).groups() for i in (1, 2))
    assert float(near_E[0]) < 0.2 < float(near_E[1])
    assert float(near_V[1]) < 0.01 < float(near_V[0])
