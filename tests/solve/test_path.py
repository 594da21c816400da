"""A path, in memory and read back."""

import json
import os

import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput
from small_runs import small_run


def test_path_round_trip(tmp_path):
    rho = ms.Measure(ms.sphere.uniform(7, 3, seed=2), mass=torch.arange(1.0, 8.0))
    w = ms.AttentionWeights(V=torch.eye(3), B=torch.eye(3))
    event = ms.Event(lambda x, m: (m @ x).norm(), level=0.5, name="half")
    path = ms.solve(ms.SelfAttention(w, 2.0), rho, 3.0, times=5, events=[event], seed=2)
    path.save(tmp_path / "run.zarr")
    again = ms.load(tmp_path / "run.zarr")
    assert torch.equal(again.points, path.points)
    assert torch.equal(again.times, path.times)
    assert torch.equal(again.mass, path.mass)
    assert torch.equal(again.end.points, path.end.points)
    assert again.events == path.events
    assert again.provenance == path.provenance
    assert again.provenance["seed"] == 2
    assert again.provenance["schema_version"] == 1
    assert torch.equal(again.measure(-1).points, path.points[-1])
    data = path.to_xarray()
    assert dict(data.sizes) == {"time": 5, "token": 7, "axis": 3}
    assert json.loads(data.attrs["provenance"])["parameters"]["flow"]["beta"] == 2.0
    assert sorted(os.listdir(tmp_path)) == ["run.zarr"]


def test_measures_are_read_one_by_one(tmp_path):
    path = small_run(times=4)
    path.save(tmp_path / "run.zarr")
    for shown in (path, ms.load(tmp_path / "run.zarr")):
        assert torch.equal(shown.measure(1).points, path.points[1])
        with pytest.raises(InvalidInput, match="the path has 4 saved times, got index 4"):
            shown.measure(4)
    assert repr(path) == "Path(4 times, t = 0 .. 2, 12 tokens in R^2)"
