"""A path, in memory and read back."""

import json
import os
import warnings

import numpy as np
import pytest
import torch
import xarray

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
    assert again.provenance["schema_version"] == 2
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


def test_a_path_is_a_sequence_of_measures(tmp_path):
    path = small_run(times=5)
    path.save(tmp_path / "run.zarr")
    for shown in (path, ms.load(tmp_path / "run.zarr")):
        assert len(shown) == 5 and len(list(shown)) == 5
        for i, rho in enumerate(shown):
            assert isinstance(rho, ms.Measure) and torch.equal(rho.points, path.points[i])
        assert torch.equal(shown[-1].points, path.points[4]) and torch.equal(shown[0].mass, path.mass)
        assert [torch.equal(a.points, b) for a, b in zip(shown[1:4], path.points[1:4], strict=True)] == [True] * 3
        assert torch.equal(shown[torch.tensor(2)].points, path.points[2])


def test_a_measure_by_its_time():
    path = small_run(times=[0.0, 0.1 + 0.2, 2.0])
    assert torch.equal(path.measure(t=0.3).points, path.points[1])
    assert torch.equal(path.measure(t=2).points, path.points[2])
    with pytest.raises(InvalidInput, match=r"t = 0\.5 is no saved time; the nearest are 0\.3\d* and 2\.0: give it"):
        path.measure(t=0.5)
    with pytest.raises(InvalidInput, match=r"t = 7\.0 is no saved time; the nearest are 2\.0"):
        path.measure(t=7)
    for wrong in ({}, {"index": 1, "t": 0.3}):
        with pytest.raises(InvalidInput, match="by its index or by its time"):
            path.measure(**wrong)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda path: path[5], "the path has 5 saved times, got index 5"),
        (lambda path: path["1"], "index must be an integer, got '1'"),
        (lambda path: path[1.0], r"index must be an integer, got 1\.0"),
        (lambda path: path["a":], "slice of a path"),
        (lambda path: path.measure(t=None), "by its index or by its time"),
        (lambda path: path.measure(t="now"), "t must be a number"),
        (lambda path: path.save(3), "destination must be a path, got 3"),
        (lambda path: path.save(""), "destination must be a path"),
        (lambda path: ms.load([[]]), r"location must be a path, got \[\[\]\]"),
        (lambda path: ms.Path(None, None, None, 0.0, {}), "end must be a Measure"),
        (lambda path: ms.Path([0.0], path.mass, path.end, 0.0, {}), "times of a Path must be a tensor"),
        (lambda path: ms.Path(path.times, path.mass, path.end, 0.0, {}), "needs its frames, or the store"),
        (lambda path: ms.Path(path.times, path.mass, path.end, 0.0, {}, frames=path.points[:2]), "one per time"),
    ],
)
def test_what_a_path_cannot_do(call, said):
    with pytest.raises(InvalidInput, match=said):
        call(small_run(times=5))


@pytest.mark.parametrize("early", [False, True])
def test_a_stored_path_opens_in_xarray_as_it_is(early, tmp_path):
    """Times are a coordinate, axes have names, nothing is warned of, frames that were not reached are not there."""
    stop = [ms.Event(lambda x, m: (x[:, 0].abs() * m).sum(), level=0.75, stop=True)] if early else []
    path = small_run(times=9, out=tmp_path / "run.zarr", events=stop)
    path.save(tmp_path / "saved.zarr")
    assert (len(path) < 9) is early
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("run.zarr", "saved.zarr"):
            data = xarray.open_zarr(tmp_path / name)
            assert data.points.dims == ("time", "token", "axis") and data.mass.dims == ("token",)
            assert data.end.dims == ("token", "axis") and set(data.variables) == {"time", "points", "mass", "end"}
            assert np.array_equal(data.points.values, path.points.numpy())
            assert np.array_equal(data.coords["time"].values, path.times.numpy())
            assert json.loads(data.attrs["provenance"])["fingerprint"] == path.provenance["fingerprint"]
            assert float(data.points.sel(time=0.5, method="nearest")[0, 0]) == float(path[2].points[0, 0])


def test_euclidean_tokens_at_the_origin_are_stored(tmp_path):
    w = ms.AttentionWeights(V=[[1.0, 0.0], [0.0, 1.0]], B=[[1.0, 0.0], [0.0, 1.0]])
    path = ms.solve(ms.EuclideanAttention(w, 1.0), [[0.0, 0.0]], 1.0, out=tmp_path / "zero.zarr")
    assert path.points.tolist() == [[[0.0, 0.0]]] * 2
