"""The dominant space of a matrix: its projector, its kind, and one answer for nearly equal eigenvalues."""

import json
import math

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput, NotDefined
from metastable.meanfield.limit import limit_space
from metastable.spectral import ISOLATION, TOLERANCE, dominant
from metastable.theory import limit_map, spectrum

I3 = np.eye(3)


@pytest.mark.parametrize("seed", range(12))
def test_projector_commutes_is_idempotent_and_has_the_right_range(seed):
    d = 2 + seed % 5
    s = dominant(torch.from_numpy(np.random.default_rng(seed).normal(size=(d, d))))
    Q, M = s.projector, s.matrix
    assert torch.allclose(Q @ Q, Q, atol=1e-10)
    assert torch.allclose(Q @ M, M @ Q, atol=1e-10)
    assert torch.allclose(Q @ s.space, s.space, atol=1e-10)
    assert round(float(torch.trace(Q))) == s.dimension
    assert torch.allclose(M @ s.space, s.space @ (s.space.T @ M @ s.space), atol=1e-10)
    # the next space is invariant too, and inside ker Q
    assert torch.allclose(Q @ s.next_space, torch.zeros_like(s.next_space), atol=1e-10)
    inner = s.next_space.T @ M @ s.next_space
    assert torch.allclose(M @ s.next_space, s.next_space @ inner, atol=1e-9)
    real = s.eigenvalues.real
    assert bool((real[:-1] >= real[1:] - 1e-12).all())
    rest = real[s.dimension :].tolist() or [-math.inf]
    assert s.gap == pytest.approx(float(real[s.dimension - 1]) - rest[0], abs=1e-12)


def test_oblique_projector_from_left_and_right_eigenvectors():
    rng = np.random.default_rng(4)
    S = rng.normal(size=(4, 4))
    A = S @ np.diag([3.0, 1.0, -1.0, -2.0]) @ np.linalg.inv(S)
    expected = np.outer(S[:, 0], np.linalg.inv(S)[0])
    assert np.allclose(dominant(torch.from_numpy(A)).projector.numpy(), expected, atol=1e-10)


@pytest.mark.parametrize(
    ("M", "kind", "k"),
    [
        (np.diag([2.0, 1.0, 0.5]), "point pair", 1),
        (np.diag([2.0, 2.0, 0.5]), "subsphere", 2),
        (3 * I3, "identity", 3),
        (np.zeros((3, 3)), "identity", 3),
        (np.diag([-1.0, -2.0, -5.0]), "point pair", 1),
        ([[1.0, -2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 0.5]], "rotation", 2),
        ([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.5]], "jordan", 2),
        ([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]], "jordan", 3),
        ([[0.5, 1.0, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 1.0]], "point pair", 1),
        ([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]], "rotation", 3),
    ],
)
def test_kinds_survive_a_change_of_basis(M, kind, k):
    rng = np.random.default_rng(1)
    S = I3 + 0.3 * rng.normal(size=(3, 3))
    for A in (np.asarray(M), S @ M @ np.linalg.inv(S)):
        s = dominant(torch.from_numpy(np.asarray(A, dtype=float)), tolerance=1e-5)
        assert (s.kind, s.dimension, s.isolated) == (kind, k, True)


def in_a_random_basis(rng, block, rest):
    """The block with smaller eigenvalues below it, conjugated by a Gaussian, a nearly orthogonal or an orthogonal
    basis."""
    m, d = len(block), len(block) + len(rest)
    A = np.zeros((d, d))
    A[:m, :m], A[m:, m:] = block, np.diag(rest)
    how = rng.integers(3)
    S = rng.normal(size=(d, d)) if how == 0 else np.eye(d) + 0.3 * rng.normal(size=(d, d))
    S = np.linalg.qr(S)[0] if how == 2 else S
    return torch.from_numpy(S @ A @ np.linalg.inv(S) * 10 ** rng.uniform(-3, 3))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_conjugated_jordan_blocks_are_called_so(size):
    # rounding splits their eigenvalue into a circle of radius eps^(1/size), with complex pairs on it
    for seed in range(60):
        rng = np.random.default_rng([size, seed])
        value = rng.uniform(-1, 1)
        block = value * np.eye(size) + np.diag(np.full(size - 1, rng.uniform(0.3, 2)), 1)
        A = in_a_random_basis(rng, block, value - rng.uniform(0.3, 1.5, int(rng.integers(3))))
        s = dominant(A)
        assert (s.kind, s.dimension, s.isolated, s.frequency) == ("jordan", size, True, 0.0), seed
        assert torch.allclose(s.projector @ A, A @ s.projector, atol=1e-9 * float(A.abs().max()))
        assert s.value == pytest.approx(float(torch.trace(s.projector @ A)) / size, abs=1e-8 * float(A.abs().max()))


def test_rotations_stay_rotations():
    for seed in range(100):
        rng = np.random.default_rng(seed)
        value, frequency = rng.uniform(-1, 1), 10 ** rng.uniform(-3, 0.3)
        block = np.array([[value, -frequency], [frequency, value]])
        s = dominant(in_a_random_basis(rng, block, value - rng.uniform(0.1, 1.5, int(rng.integers(4)))))
        assert (s.kind, s.dimension) == ("rotation", 2), (seed, frequency)


def test_symmetric_projector_is_orthogonal():
    rng = np.random.default_rng(2)
    A = rng.normal(size=(5, 5))
    s = dominant(torch.from_numpy(A + A.T))
    assert s.symmetric and s.symmetry_defect < 1e-15
    assert torch.allclose(s.projector, s.projector.T, atol=1e-14)
    assert s.projector_norm == pytest.approx(1.0, abs=1e-13)


def turned(values, seed=0):
    """Symmetric matrix with these eigenvalues in a random basis."""
    Z = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(values), len(values))))[0]
    return Z @ np.diag(values) @ Z.T


@pytest.mark.parametrize("gap", [1e-8, 1e-7, 0.5 * TOLERANCE, 3 * TOLERANCE, 2 * ISOLATION * TOLERANCE, 1e-3])
@pytest.mark.parametrize("skew", [0.0, 0.4])
def test_every_room_gives_nearly_equal_eigenvalues_one_answer(gap, skew):
    S = np.eye(3) + skew * np.random.default_rng(1).normal(size=(3, 3))
    M = S @ turned([1.0, 1.0 - gap, 0.2]) @ np.linalg.inv(S)
    w = ms.AttentionWeights(V=M, B=I3)
    says = []
    for room in (lambda: limit_map(w).spectrum.M, lambda: limit_space(w)):
        try:
            says.append(room())
        except InvalidInput as refused:
            says.append(str(refused))
    if isinstance(says[0], str):
        assert says[0] == says[1] and "is not isolated" in says[0]
        assert TOLERANCE < gap < ISOLATION * TOLERANCE
    else:
        assert says[0].dimension == says[1].dimension == (2 if gap < TOLERANCE else 1)
        assert torch.equal(says[0].projector, says[1].projector)


@pytest.mark.parametrize(
    ("V", "theory", "meanfield"),
    [
        (
            [[1.0, -2.0], [2.0, 1.0]],
            "complex pair 1 \\+- 2i",
            "dominant pair 1\\+2j, so there is no limit map",
        ),
        (
            [[1.0, 1.0], [0.0, 1.0]],
            "defective",
            "Jordan block at its dominant eigenvalue, so there",
        ),
    ],
)
def test_no_limit_map_in_either_room(V, theory, meanfield):
    w = ms.AttentionWeights(V=V, B=np.eye(2))
    with pytest.raises(NotDefined, match=theory):
        limit_map(w)
    with pytest.raises(NotDefined, match=meanfield):
        limit_space(w)


def test_spectrum_is_built_on_it_and_is_plain_for_json():
    w = ms.AttentionWeights(V=turned([2.0, 1.0, 0.5]), B=I3)
    assert torch.equal(spectrum(w).projector, dominant(w.M).projector)
    record = json.loads(json.dumps(dominant(torch.eye(2, dtype=torch.float64)).to_dict(), allow_nan=False))
    assert record["gap"] is None and record["kind"] == "identity"


def test_refusals():
    with pytest.raises(InvalidInput, match=r"tolerance must be > 0 and < 0\.1, got 0\.5"):
        dominant(torch.eye(2, dtype=torch.float64), 0.5)
    with pytest.raises(InvalidInput, match="finite entries"):
        dominant(torch.tensor([[math.inf, 0.0], [0.0, 1.0]], dtype=torch.float64))


@pytest.mark.parametrize(
    ("matrix", "said"),
    [
        (torch.ones(2, 3), r"needs a square matrix, got an array of shape \(2, 3\)"),
        (torch.ones(0), r"needs a square matrix, got an array of shape \(0,\)"),
        ([[1.0, math.nan], [0.0, 1.0]], "finite entries, got an infinity or NaN"),
        (torch.ones(2, 2) * 1j, "the matrix must be real, got complex values"),
        ("abc", "the matrix must be an array of real numbers, got 'abc'"),
    ],
)
def test_what_is_no_square_real_matrix_is_told(matrix, said):
    with pytest.raises(InvalidInput, match=said):
        dominant(matrix)
    assert dominant([[2.0, 0.0], [0.0, 1.0]]).kind == "point pair"
