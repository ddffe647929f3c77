"""What a run leaves on disk is for its owner alone, even where the umask lets everybody read everything."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

import gossamer as gs
from gossamer.cli import main
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.files import for_owner, make_own_folder, replaced, write_own
from gossamer.protocol.events import Started
from gossamer.protocol.trace import TraceStep, write_step

PUBLIC = {"invitation.yaml", "ca.crt", "tls.crt", "authority.crt", "federation.yaml", "mosquitto.conf"}
"""Papers that the organiser hands out; the folders that they lie in are the organiser's."""

SPEC = """
dataset: digits
algorithm: {name: gossip, nodes: 2, topology: complete, batch_size: 16, updates_per_node: 5}
budget: {epsilon: 8, delta: 1.0e-4}
"""
SIMULATED = {
    "dataset": "digits",
    "algorithm": {"name": "gossip", "nodes": 2, "topology": "complete"},
    "privacy": "none",
    "stop": {"updates": 4},
}


@pytest.fixture(autouse=True, params=[0o000, 0o022], ids=["umask 0", "umask 022"])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def readable(folder: Path) -> set[str]:
    """Files that somebody else could open, were the folders above them open to all."""
    return {path.name for path in folder.rglob("*") if path.is_file() and mode(path) & 0o077}


def test_a_simulations_results_and_trace(tmp_path: Path) -> None:
    out, trace = tmp_path / "made" / "run", tmp_path / "trace.bin"
    with trace.open("wb") as file:
        write_step(file, TraceStep(0.0, "an earlier run, and open to all", Started(), []))
    trace.chmod(0o666)
    gs.run(parse_spec(SIMULATED), out, trace=trace)
    assert {path.name for path in out.iterdir()} >= {"summary.json", "metrics.jsonl", "model.safetensors"}
    assert readable(tmp_path) == set()
    assert mode(out) == 0o700


def test_results_of_an_earlier_run_are_closed_when_they_are_replaced(tmp_path: Path) -> None:
    experiment = parse_spec(SIMULATED)
    gs.run(experiment, tmp_path / "run")
    for path in (tmp_path / "run").iterdir():
        path.chmod(0o644)
    gs.run(experiment, tmp_path / "run", overwrite=True)
    assert readable(tmp_path) == set()


def test_what_an_attack_recovers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "dataset: digits\nalgorithm: {name: gossip, nodes: 2, topology: complete}\nprivacy: none\nstop: {updates: 4}\n"
    )
    out = tmp_path / "attacked"
    assert main(["attack", "inversion", str(spec), "--examples", "1", "--out", str(out)]) == 0
    assert mode(out) == 0o700
    assert {path.name for path in out.iterdir()} >= {"inversion.json"}
    assert readable(out) == set()


@pytest.mark.slow
def test_a_federation_on_one_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Shards, stores, ledgers, logs, traces and models of real processes; into a folder that was open to all."""
    pytest.importorskip("amqtt", reason="needs the extra broker")
    pytest.importorskip("cryptography", reason="needs the extra secure")
    spec, out = tmp_path / "spec.yaml", tmp_path / "up"
    spec.write_text(SPEC)
    out.mkdir(mode=0o777)
    assert main(["up", str(spec), "--out", str(out), "--trace", "--json"]) == 0
    party = {path.name for path in (out / "node-0").rglob("*")}
    assert party >= {"data.npz", "policy.yaml", "policy.ledger", "trace.bin", "store.sqlite", "model.safetensors"}
    assert readable(out) - PUBLIC == set()
    folders = [path for path in out.rglob("*") if path.is_dir()]
    assert {mode(path) for path in folders} == {0o700}


def test_the_shard_that_a_party_is_dealt(tmp_path: Path) -> None:
    """All that `gossamer up` writes before it starts a process."""
    pytest.importorskip("cryptography", reason="needs the extra secure")
    from gossamer.cli.federation.local_federation import LocalFederation

    LocalFederation.found(parse_spec(yaml.safe_load(SPEC)), tmp_path / "up", "mqtt://127.0.0.1:1")
    assert (tmp_path / "up" / "node-0" / "data.npz").exists()
    assert readable(tmp_path) - PUBLIC == set()


def test_a_file_is_whole_or_not_there_and_never_open(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_text("before")
    path.chmod(0o644)

    def half() -> None:
        with replaced(path) as file:
            file.write(b"half")
            assert [mode(beside) for beside in tmp_path.iterdir() if beside != path] == [0o600]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half()
    assert path.read_text() == "before"
    assert [found.name for found in tmp_path.iterdir()] == ["a.npz"]
    with replaced(path) as file:
        np.savez(file, x=np.ones(2))
    assert mode(path) == 0o600
    write_own(path, "text")
    assert path.read_text() == "text"


def test_what_is_no_file_is_left_as_it_is(tmp_path: Path) -> None:
    """``--trace /dev/null``, by an administrator, must not close it to everybody else."""
    before = mode(Path("/dev/null"))
    with open("/dev/null", "wb", opener=for_owner) as file:
        file.write(b"x")
    assert mode(Path("/dev/null")) == before


def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    make_own_folder(tmp_path / "new")
    (tmp_path / "old").mkdir()
    (tmp_path / "old").chmod(0o750)
    make_own_folder(tmp_path / "old")
    assert (mode(tmp_path / "new"), mode(tmp_path / "old")) == (0o700, 0o750)
