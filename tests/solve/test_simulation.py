"""A run as a config: read, built, run, written."""

import tomllib

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput, StorageError
from metastable.solve import Observer
from metastable.solve.simulation import Simulation, read_config


def test_configuration_errors(tmp_path):
    broken = tmp_path / "broken.toml"
    broken.write_text("[flow\n")
    with pytest.raises(StorageError, match="is not a TOML file"):
        read_config(str(broken), {})
    broken.write_text("[flow]\nbate = 3\n")
    with pytest.raises(InvalidInput, match=r"flow\.bate is not a known entry; choose from kind, beta"):
        read_config(str(broken), {})
    broken.write_text("[flows]\nbeta = 3\n")
    with pytest.raises(InvalidInput, match="flows is not a known entry; choose from weights, flow"):
        read_config(str(broken), {})
    broken.write_text("[flow]\nbeta = 'x'\n")
    with pytest.raises(InvalidInput, match=r"flow.beta must be a valid number.*got 'x'"):
        read_config(str(broken), {})


def test_every_kind_of_flow_and_law_builds(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(3))
    for kind in ("self-attention", "unnormalized", "zero-temperature", "hardmax", "euclidean"):
        flow, _ = read_config(None, {"flow": {"kind": kind}}).build()
        assert flow.d == 2
    for law in ("uniform", "fibonacci", "von-mises-fisher", "file"):
        settings = read_config(
            None,
            {
                "weights": {"V": "diag(1,2,3)", "B": "2 I"},
                "tokens": {"law": law, "n": 7, "file": str(tmp_path / "x.npy")},
            },
        )
        assert settings.build()[1].d == 3
    with pytest.raises(InvalidInput, match="equispaced tokens live in dimension 2"):
        read_config(None, {"weights": {"V": "I3", "B": "I3"}, "tokens": {"law": "equispaced"}}).build()


def test_it_runs_and_writes_its_configuration_beside_the_path(tmp_path):
    out = str(tmp_path / "run")
    simulation = Simulation(
        flow={"beta": 8.0}, tokens={"n": 12}, run={"t": 1.0, "frames": 3, "method": "rk4"}, output={"out": out}
    )
    steps = []

    class Counter(Observer):
        def step(self, step):
            steps.append(step.t)

    path = simulation.run(observers=[Counter()])
    flow, rho = simulation.build()
    assert torch.equal(path.points, ms.solve(flow, rho, 1.0, times=3, method="rk4").points)
    assert len(steps) == 100 and path.store == f"{out}/path.zarr"
    written = read_config(f"{out}/config.toml", {})
    assert written == simulation
    assert tomllib.loads(simulation.to_toml())["run"]["frames"] == 3
    assert list(simulation.to_dict()) == ["weights", "flow", "tokens", "run", "output"]


def test_the_section_run_is_called_integration_in_python():
    assert Simulation(run={"t": 3.0}).integration.t == Simulation(integration={"t": 3.0}).integration.t == 3.0
    with pytest.raises(InvalidInput, match=r"run\.steps is not a known entry; choose from t, frames, method"):
        read_config(None, {"run": {"steps": 3}})
    with pytest.raises(InvalidInput, match=r"run\.frames must be greater than or equal to 2, got 1"):
        read_config(None, {"run": {"frames": 1}})


def test_tokens_from_a_file_need_a_file():
    with pytest.raises(InvalidInput, match=r"tokens\.law = 'file' needs tokens\.file"):
        Simulation(tokens={"law": "file"}).build()
    with pytest.raises(InvalidInput, match="device 'nowhere' cannot be used"):
        Simulation(run={"device": "nowhere"}).build()


def test_mistakes_from_python_are_one_sentence_too():
    with pytest.raises(InvalidInput, match=r"tokens\.n must be greater than or equal to 1, got 0"):
        ms.Simulation(tokens={"n": 0})
    with pytest.raises(InvalidInput, match="token is not a known entry; choose from weights, flow, tokens"):
        ms.Simulation(token={"n": 5})


def test_the_tolerance_of_its_attention_in_words():
    for written, kept in (("auto", None), ("none", None), (1e-4, 1e-4)):
        flow, _ = Simulation(flow={"rtol": written}).build()
        assert flow.rtol == kept and flow.follows_run == (written == "auto")


def test_what_it_is_in_one_line():
    assert repr(Simulation()) == (
        "Simulation(self-attention at beta = 100, 600 uniform tokens, t = 22, out = 'metastable-out/simulate')"
    )


@pytest.mark.parametrize("wrong", [3, [], b"", "", "a\0b"])
def test_a_configuration_is_a_file(wrong):
    with pytest.raises((InvalidInput, StorageError)):
        read_config(wrong, {})
