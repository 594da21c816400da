"""`MeanFieldPath`: a path that knows its error."""

import torch

import metastable as ms
from metastable.meanfield import reference_skew, solve
from metastable.papers.concentration.families import sheared


def test_result_is_a_path_with_its_error(tmp_path):
    path = solve(sheared(0.5), 8.0, reference_skew(), 1.0, tol=1e-5, times=[0.0, 0.5, 1.0])
    assert isinstance(path, ms.Path)
    assert path.converged and 0 < path.error < 1e-5
    assert path.errors.shape == (3,)
    assert path.provenance["meanfield"]["error"] == path.error
    assert path.points.shape == (3, path.end.n, 2)
    assert path.end_time == 1.0
    assert torch.equal(path.points[-1], path.end.points)
    assert torch.allclose(path.points[0], path.start.points, atol=1e-14)
    path.save(tmp_path / "run.zarr")
    assert ms.load(tmp_path / "run.zarr").provenance["meanfield"]["converged"] is True
