"""Late times on S^2: bundles against the solver for laws with an axis, and what a path says when it cannot."""

import numpy as np
import pytest
import torch

from metastable import AttentionWeights, SelfAttention
from metastable.errors import InvalidInput
from metastable.meanfield import Skewed, solve, solve_axial
from metastable.meanfield.refine_bundle import _laid_out, is_late
from weight_families import diagonal

E = [1.0, 0.0, 0.0]
SHEAR = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])


def gaps(w, beta, law, times, tol):
    """The path, and its distance from the other method at the times, root mean square over rho_0."""
    path, axial = solve(w, beta, law, times[-1], tol=tol, times=times), solve_axial(w, beta, law, times, E, tol=tol)
    apart = [path.points[i] - axial.carry(i, path.start.points) for i in range(len(times))]
    return path, axial, [float(path.mass @ gap.square().sum(1)) ** 0.5 for gap in apart]


def test_both_methods_agree_after_the_concentration():
    path, axial, found = gaps(diagonal(2, 1, 1), 2.0, Skewed(E, 0.6), [2.0, 4.0], 1e-2)
    assert path.converged and axial.converged and path.provenance["meanfield"]["solver"] == "bundle of lines"
    assert all(gap <= a + b for gap, a, b in zip(found, path.errors.tolist(), axial.errors.tolist(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("beta", "tol"), [(4.0, 1e-5), (16.0, 1e-4)])
def test_both_methods_agree_at_late_times(beta, tol):
    path, axial, found = gaps(diagonal(2, 1, 1), beta, Skewed(E, 0.6), [5.0, 20.0], tol)
    assert path.converged and axial.converged and max(found) < tol


@pytest.mark.slow
def test_the_estimate_covers_the_error_through_the_exit():
    """M = diag(2, 1, .5), B sheared: at beta = 8 the clusters leave E = e_1 about t = 2; no symmetry."""
    w = AttentionWeights(V=np.diag([2.0, 1.0, 0.5]) @ np.linalg.inv(SHEAR).T, B=SHEAR)
    loose, fine = (solve(w, 8.0, Skewed([1.0, 0.5, 0.2], 0.6), 6.0, tol=tol) for tol in (1e-2, 1e-3))
    assert loose.converged and fine.converged
    moments = [
        (p.end.mass @ p.end.points, p.end.points.T @ (p.end.mass[:, None] * p.end.points)) for p in (loose, fine)
    ]
    assert all(float((a - b).abs().max()) <= 2 * (loose.error + fine.error) for a, b in zip(*moments, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("B", "height"), [(np.eye(3), 0.29164966094), (SHEAR, 0.26755135231)])
def test_a_law_without_an_axis_is_resolved_through_its_fronts(B, height):
    """E x_1 at t = 20 for M = diag(2, 1, .5), beta = 16, against runs at tol = 1e-5, which end 6.8e-6 and 7.6e-6
    from the ones before: clusters that differ by a mass dp are 2 sqrt(dp) apart in W2, and 2 dp in E x."""
    w = AttentionWeights(V=np.diag([2.0, 1.0, 0.5]) @ np.linalg.inv(B).T, B=B)
    path = solve(w, 16.0, Skewed([1.0, 0.5, 0.2], 0.6), 20.0, tol=1e-4)
    assert path.converged
    assert float(path.end.mass @ path.end.points[:, 0]) == pytest.approx(height, abs=path.error**2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_attention_on_a_gpu_gives_the_same_law():
    w, law = diagonal(2, 1, 0.5), Skewed([1.0, 0.5, 0.2], 0.6)
    here, there = (solve(w, 4.0, law, 4.0, tol=1e-3, device=device) for device in ("cpu", "cuda"))
    assert there.converged and there.points.device.type == "cpu"
    means = [path.end.mass @ path.end.points for path in (here, there)]
    assert float((means[0] - means[1]).abs().max()) < 1e-6


@pytest.mark.skipif(torch.cuda.is_available(), reason="about machines without CUDA")
def test_a_gpu_that_is_not_there_is_told():
    with pytest.raises(InvalidInput, match="cuda"):
        solve(diagonal(2, 1, 0.5), 4.0, Skewed(E, 0.6), 4.0, device="cuda")


def test_too_few_nodes_are_told():
    with pytest.warns(RuntimeWarning, match="raise max_nodes or tol"):
        path = solve(diagonal(2, 1, 1), 4.0, Skewed(E, 0.5), 2.0, tol=1e-2, max_nodes=1500)
    assert not path.converged


def test_lines_cross_the_separatrix_and_are_dense_at_its_source():
    """M = V B^T with the left eigenvector l of its largest eigenvalue: l M = lambda l, and M a = lambda_3 a."""
    V = np.array([[2.0, 0.3, 0.1], [0.0, 1.0, 0.2], [0.0, 0.0, 0.4]])
    frame, grading = _laid_out(AttentionWeights(V=V, B=np.eye(3)), 5.0, 1e-10)
    assert np.allclose(frame @ frame.T, np.eye(3), atol=1e-12)
    assert np.allclose(frame[2] @ V, 2.0 * frame[2], atol=1e-12)
    assert np.allclose(V @ frame[0], 0.4 * frame[0], atol=1e-12)
    assert grading.width == pytest.approx(np.exp(-0.6 * 5.0))


def test_eigenvalues_may_come_as_complex_numbers(monkeypatch):
    """Some versions of NumPy return real eigenvalues so: the source of the flow on the separatrix is still seen."""
    expected = _laid_out(diagonal(2, 1, 0.5), 5.0, 1e-10)
    eig = np.linalg.eig
    monkeypatch.setattr(np.linalg, "eig", lambda a: tuple(np.asarray(x, dtype=complex) for x in eig(a)))
    frame, grading = _laid_out(diagonal(2, 1, 0.5), 5.0, 1e-10)
    assert grading == expected[1] and grading.extra > 0
    assert np.isrealobj(frame) and np.allclose(frame, expected[0])


def test_product_rules_stay_where_nothing_is_torn():
    flow = SelfAttention(diagonal(2, 1, 1), 4.0)
    assert is_late(flow, 2.0) and not is_late(flow, 1.0)
    assert not is_late(SelfAttention(diagonal(1, 1, 1), 4.0), 20.0), "no separatrix"
