"""Leak audits of runs whose data sides compute otherwise than in the tiny specs: scales, networks, sparse examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from tests.reference.leak_specs import tiny

import gossamer as gs
from gossamer.errors import SpecError
from gossamer.experiment.audits.leak_audit import LeakAudit, audit_leak
from gossamer.experiment.preparation.prepare import FromMemory, Prepared, prepare
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.sides.machine import Side

NODES = 3
GOSSIP: dict[str, Any] = {
    "algorithm": {"name": "gossip", "nodes": NODES, "batch_size": 4, "updates_per_node": 3},
    "privacy": {"clip": 1.0, "noise_multiplier": 1.0},
    "evaluation": "off",
}


def held(found: LeakAudit) -> None:
    assert found.leak is None, f"{found.neighbours}: {found.leak}"
    assert 0 < found.differing_releases <= found.releases


def of_arrays(x: Any, **sections: Any) -> Prepared:
    y = np.arange(x.shape[0]) % 2
    data = gs.Data(x, y, x_test=x[:6], y_test=y[:6], labels=[0, 1])
    return prepare(parse_spec({**GOSSIP, **sections}), FromMemory(data))


def test_a_private_scale_is_a_release_like_others(tmp_path: Path) -> None:
    """It is found before the run, from all rows, and held against the sensitivity of a vector of length 1."""
    generator = np.random.default_rng(5)
    path = tmp_path / "things.csv"
    rows = (f"{a:.6g},o{i % NODES},{int(a > 3e4)}" for i, a in enumerate(generator.uniform(1e4, 5e4, 36)))
    path.write_text("size,owner,good\n" + "\n".join(rows) + "\n")
    dataset = {"name": "things", "path": path, "target": "good", "owner": "owner", "labels": [0, 1]}
    dataset |= {"columns": {"size": "number"}, "scale": "private"}
    spec = parse_spec(
        {
            **GOSSIP,
            "dataset": dataset,
            "partition": "natural",
            "objective": "logistic",
            "privacy": {"clip": 1.0},
            "budget": {"epsilon": 50.0, "delta": 1e-5},
        }
    )
    found = audit_leak(prepare(spec), pairs=16)
    held(found)
    assert found.releases == 16 * NODES * 4  # a scale and three gradients of each node


@pytest.mark.some(1)
@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_networks(relation: str) -> None:
    pytest.importorskip("torch", reason="needs the extra torch")
    x = np.random.default_rng(1).standard_normal((18, 4))
    privacy = {**GOSSIP["privacy"], "neighboring_relation": relation}
    held(audit_leak(of_arrays(x, objective="mlp", privacy=privacy), pairs=12))


def test_sparse_examples() -> None:
    x = sp.random_array((18, 30), density=0.2, rng=np.random.default_rng(2), format="csr")
    held(audit_leak(of_arrays(x, objective="logistic"), pairs=16))


def test_of_what_is_long_the_first_updates_are_run() -> None:
    whole, begun = (audit_leak(tiny("gossip"), pairs=1, updates=updates) for updates in (200, 4))
    assert whole.releases == 9
    assert begun.releases < 9


def test_the_same_spec_finds_the_same() -> None:
    assert audit_leak(tiny("audp"), pairs=4) == audit_leak(tiny("audp"), pairs=4)


def test_a_run_that_fails_on_one_of_both_is_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    release = Side.release

    def failing(self: Side, ticket: Any, raw: Any) -> Any:
        if not np.isfinite(raw.total).all() or raw.zeroed:
            raise ArithmeticError("overflow")
        return release(self, ticket, raw)

    monkeypatch.setattr(Side, "release", failing)
    found = audit_leak(tiny("gossip-replace"), pairs=50)
    assert found.leak == "the run fails, and the first one did not: overflow"


def test_no_pair_says_nothing() -> None:
    with pytest.raises(SpecError, match="1 pair or more"):
        audit_leak(tiny("gossip"), pairs=0)
