"""Weights and tokens as people give them."""

import json

import numpy as np
import pytest

import metastable as ms
from metastable import readers
from metastable.errors import InvalidInput, MetastableError, StorageError
from metastable.readers import lattice, parse_matrix, parse_numbers, read_tokens, read_weights, weights_from


def test_matrices_as_people_write_them(tmp_path):
    np.savetxt(tmp_path / "m.txt", np.eye(2))
    assert parse_matrix("[[1,.5],[0,1]]").tolist() == [[1.0, 0.5], [0.0, 1.0]]
    assert parse_matrix("-I2").tolist() == [[-1.0, 0.0], [0.0, -1.0]]
    assert parse_matrix("1.5*I", d=1).tolist() == [[1.5]]
    assert parse_matrix(str(tmp_path / "m.txt")).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert parse_numbers("4, 16 64") == [4.0, 16.0, 64.0]
    for wrong in ("I", "magic", "[1,", "diag(a)", ". I2", "[1, 2]"):
        with pytest.raises(InvalidInput):
            parse_matrix(wrong)
    (tmp_path / "bad.npy").write_bytes(b"nonsense")
    with pytest.raises(StorageError, match="cannot be read as an array"):
        parse_matrix(str(tmp_path / "bad.npy"))


def test_weights_from_files(tmp_path):
    V, B = np.diag([2.0, 1.0]), np.array([[1.0, 0.5], [0.0, 1.0]])
    np.savez(tmp_path / "w.npz", V=V, B=B)
    (tmp_path / "w.json").write_text(json.dumps({"V": V.tolist(), "B": B.tolist()}))
    (tmp_path / "w.toml").write_text('[weights]\nV = "diag(2,1)"\nB = [[1.0, 0.5], [0.0, 1.0]]\n')
    for name in ("w.npz", "w.json", "w.toml"):
        w = read_weights(str(tmp_path / name), None, None, None)
        assert np.allclose(w.V.numpy(), V) and np.allclose(w.B.numpy(), B)
    overruled = read_weights(str(tmp_path / "w.npz"), None, "I", None)
    assert np.allclose(overruled.B.numpy(), np.eye(2))
    rng = np.random.default_rng(0)
    Q, K = rng.normal(size=(2, 3)), rng.normal(size=(2, 3))
    np.savez(tmp_path / "qkv.npz", Q=Q, K=K, V=np.eye(3))
    assert np.allclose(read_weights(str(tmp_path / "qkv.npz"), None, None, None).B.numpy(), Q.T @ K)


def test_one_sentence_for_each_mistake(tmp_path):
    with pytest.raises(StorageError, match="no file"):
        read_weights("absent.npz", None, None, None)
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(StorageError, match="cannot be read"):
        read_weights(str(tmp_path / "bad.json"), None, None, None)
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(InvalidInput, match="by name"):
        read_weights(str(tmp_path / "list.json"), None, None, None)
    with pytest.raises(InvalidInput, match="both V and B"):
        read_weights(None, "diag(1,2)", None, None)


def test_an_identity_takes_the_dimension_of_its_partner():
    for V, B in (("diag(1,2,3)", "2 I"), ("I", "diag(1,2,3)")):
        assert weights_from(V, B).d == 3
    assert weights_from("I", "I", d=4).d == 4
    with pytest.raises(InvalidInput, match="V = 'I' does not say its dimension"):
        weights_from("I", "I")


def test_lattices_live_in_their_dimension():
    assert (lattice("equispaced", 5, 2) == ms.sphere.equispaced(5)).all()
    assert (lattice("fibonacci", 5, 3) == ms.sphere.fibonacci(5)).all()
    with pytest.raises(InvalidInput, match="fibonacci tokens live in dimension 3, but the weights have"):
        lattice("fibonacci", 5, 2)


def test_tokens_from_a_law_or_a_file(tmp_path):
    random, nodes = read_tokens("uniform", 7, 3, seed=2)
    assert (random.points == ms.sphere.uniform(7, 3, seed=2)).all() and not nodes
    assert read_tokens("equispaced", 6, 2)[1]
    np.save(tmp_path / "tokens.npy", 3 * np.eye(4))
    stored, nodes = read_tokens(str(tmp_path / "tokens.npy"), 0, 4)
    assert stored.points.tolist() == np.eye(4).tolist() and not nodes
    with pytest.raises(InvalidInput, match="unknown tokens 'gaussian'; choose from uniform, equispaced, fibonacci"):
        read_tokens("gaussian", 5, 2)


def sentence(call):
    """What the call is refused with; nothing if it is not."""
    try:
        call()
    except MetastableError as error:
        return str(error)
    return ""


NONSENSE = (
    None,
    "3",
    b"",
    [],
    [[]],
    {},
    [[1.0], [1.0, 2.0]],
    1j,
    float("nan"),
    10**400,
    -1,
    2**63,
    object(),
    "[[" * 999,
)


@pytest.mark.parametrize("wrong", NONSENSE, ids=lambda v: repr(v)[:20])
def test_whatever_is_given_no_foreign_exception_comes_out(wrong):
    for call in (
        lambda: readers.parse_matrix(wrong),
        lambda: readers.parse_matrix("I", wrong),
        lambda: readers.parse_numbers(wrong),
        lambda: readers.parse_count(wrong),
        lambda: readers.weights_from(wrong, "I"),
        lambda: readers.read_weights(wrong, V=wrong),
        lambda: readers.read_matrices(wrong),
        lambda: readers.lattice(wrong, 3, 2),
        lambda: readers.lattice("equispaced", 3, wrong),
        lambda: readers.read_tokens(wrong, 3, 2),
        lambda: readers.read_tokens("uniform", wrong, wrong),
    ):
        said = sentence(call)
        assert len(said) < 200 and "\n" not in said


def test_double_stays_double_from_word_to_weight(tmp_path):
    third = "0.1234567890123456789"
    exact = float(third)
    np.save(tmp_path / "V.npy", np.diag([exact, 1.0]))
    (tmp_path / "w.toml").write_text(f"[weights]\nV = [[{third}, 0], [0, 1]]\nB = 'I'\n")
    (tmp_path / "w.json").write_text(f'{{"V": [[{third}, 0], [0, 1]], "B": "diag({third}, 1)"}}')
    for V in (f"diag({third}, 1)", f"[[{third}, 0], [0, 1]]", str(tmp_path / "V.npy"), np.diag([exact, 1.0])):
        assert readers.weights_from(V, "I").V[0, 0].item() == exact
    assert readers.parse_matrix(f"{third} I2")[0, 0].item() == exact
    for name in ("w.toml", "w.json"):
        assert readers.read_weights(str(tmp_path / name)).V[0, 0].item() == exact
    assert readers.read_weights(str(tmp_path / "w.json")).B[0, 0].item() == exact


@pytest.mark.parametrize("text", ["1e", "2.5", "", "many", "nan", "1e400", None, 2.5])
def test_what_is_no_whole_number(text):
    with pytest.raises(InvalidInput, match=r"n must be"):
        readers.parse_count(text)
    assert [readers.parse_count(t) for t in ("600", "1e6", "2.5e3", 7, str(10**18 + 1))] == [
        *(600, 10**6, 2500, 7, 10**18 + 1)
    ]
