"""Nodes that do not fit into memory are refused before they are made, and those that hardly do are told."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from gossamer.cli import main
from gossamer.experiment.preparation import memory
from gossamer.experiment.preparation.prepare import Prepared, prepare
from gossamer.experiment.specs.spec_file import spec_of

GOSSIP = {"name": "gossip", "nodes": 100, "batch_size": 4, "updates_per_node": 2}
SPEC: dict[str, Any] = {"dataset": "digits", "algorithm": GOSSIP, "budget": {"epsilon": 5, "delta": 1e-4}}
VECTOR = 650 * 4


def prepared(**changes: Any) -> Prepared:
    return prepare(spec_of(SPEC | changes))


@pytest.mark.parametrize(
    ("changes", "compiled", "each"),
    [
        ({}, None, VECTOR + 4096),  # neither way takes less
        ({"objective": "softmax"}, True, 4 * VECTOR + 300),
        ({"compute": {"engine": "simulator"}}, None, VECTOR + 4096),
        ({"algorithm": GOSSIP | {"name": "fedasync"}}, None, 4096),  # a client has no model of its own
    ],
)
def test_they_are_refused_where_they_cannot_fit(
    changes: Any, compiled: bool | None, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = prepared(**changes)
    monkeypatch.setattr(memory, "available", lambda: 100.0 * each - 1)
    with pytest.raises(memory.SpecError, match=r"nodes: 100 nodes and models of 650 numbers .*; take at most 99, or"):
        memory.check_memory(run, compiled)
    monkeypatch.setattr(memory, "available", lambda: 100.0 * each)
    memory.check_memory(run, compiled)


def test_a_check_and_a_run_refuse_them_and_begin_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (spec := tmp_path / "spec.yaml").write_text(json.dumps(SPEC))
    monkeypatch.setattr(memory, "available", lambda: 2.0**18)
    for command in (["check", str(spec)], ["run", str(spec), "--out", str(tmp_path / "out")]):
        assert main(command) == 2
        out, err = capsys.readouterr()
        assert (out, len(err.splitlines())) == ("", 1)
        assert "100 nodes and models of 650 numbers take at least 0.0 GiB in one process" in err
    assert not (tmp_path / "out").exists()


def test_what_is_free_is_what_the_machine_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 2**24 < memory.available() < 2**50
    told = {"meminfo": "MemTotal: 9 kB\nMemAvailable: 3 kB\nSwapFree: 1 kB\n"}
    monkeypatch.setattr(Path, "read_text", lambda *_: told["meminfo"])
    assert memory.available() == 4096
    told["meminfo"] = "nothing"
    assert memory.available() == math.inf


def test_the_nodes_of_a_spec_are_bounded_before_any_list_is_made() -> None:
    with pytest.raises(memory.SpecError, match=r"algorithm\.nodes: .* 1000000, found"):
        spec_of(SPEC | {"algorithm": GOSSIP | {"nodes": 10**9}})
