"""Topologies and partitions that other distributions register: used, hashed, named, allowed, refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.reference.outside import written
from tests.reference.refusals import refusal

import gossamer as gs
from gossamer.data.partition import KIND as PARTITIONS
from gossamer.deployment.founding.federation_spec import own_code
from gossamer.errors import SpecError
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.specs.spec import of_others
from gossamer.experiment.specs.spec_file import parse_spec, read_text, write_spec
from gossamer.topology.topologies import KIND as TOPOLOGIES
from gossamer.topology.topologies import build_graph

TREE = """
from typing import Literal
import numpy as np
from pydantic import Field
from gossamer.topology.kinds import OwnTopology

class Tree(OwnTopology):
    name: Literal["tree"] = "tree"
    arity: int = Field(default=2, ge=1)

    def edges(self, nodes, generator):
        below = np.arange(1, nodes)
        return np.stack([(below - 1) // self.arity, below], axis=1)
"""
LAST = """
from typing import Literal
import numpy as np
from gossamer.data.partition import Scheme

class Last(Scheme):
    name: Literal["last"] = "last"
    rest: int = 10

    def assign(self, population, nodes, generator):
        found = np.full(len(population), nodes - 1)
        found[: self.rest * (nodes - 1)] = np.repeat(np.arange(nodes - 1), self.rest)
        return found
"""
BOOM = "raise RuntimeError('boom')\n"
GOSSIP = {"name": "gossip", "nodes": 7, "updates_per_node": 2, "batch_size": 5}


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    yield
    for kind in (TOPOLOGIES, PARTITIONS):
        kind.loaded.clear()
    for name in ("my_graphs", "my_deals", "bold"):
        sys.modules.pop(name, None)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "site").mkdir()
    monkeypatch.syspath_prepend(tmp_path / "site")
    return tmp_path / "site"


@pytest.fixture
def both(site: Path) -> Path:
    written(site, "My_Graphs", "1.2", {"tree": "my_graphs:Tree"}, "gossamer.topologies", my_graphs=TREE)
    return written(site, "my-deals", "0.3", {"last": "my_deals:Last"}, "gossamer.partitions", my_deals=LAST)


def spec(**changes: Any) -> dict[str, Any]:
    algorithm = {**GOSSIP, "topology": "tree"}
    return {"algorithm": algorithm, "partition": "last", "privacy": {"noise_multiplier": 4.0}, **changes}


def test_their_graph_and_their_shards_are_those_of_the_run(both: Path) -> None:
    prepared = prepare(parse_spec(spec()))
    assert prepared.graph.edges.tolist() == [[0, 1], [0, 2], [1, 3], [1, 4], [2, 5], [2, 6]]
    assert [len(shard) for shard in prepared.shards[:-1]] == [10] * 6
    wide = parse_spec(spec(algorithm={**GOSSIP, "topology": {"name": "tree", "arity": 6}}))
    assert prepare(wide).graph.edges[:, 0].tolist() == [0] * 6


def test_results_name_and_hash_them_and_the_guarantee_trusts_them(both: Path) -> None:
    result = gs.run(parse_spec(spec()))
    last, tree = result.summary["other_code"]
    said = [[one[key] for key in ("kind", "name", "distribution", "version")] for one in (tree, last)]
    assert said == [["topology", "tree", "my-graphs", "1.2"], ["partition", "last", "my-deals", "0.3"]]
    assert len({tree["sha256"], last["sha256"]}) == 2
    trusted = [line for line in result.guarantee.assumptions if "is trusted: its" in line]
    whose = {line.partition(" is trusted")[0] for line in trusted}
    assert whose == {"the code of my-graphs 1.2", "the code of my-deals 0.3"}
    usual = gs.run(parse_spec(spec(algorithm=GOSSIP, partition="iid")))
    assert "other_code" not in usual.summary
    assert not any("is trusted: its" in line for line in usual.guarantee.assumptions)


def test_noise_depends_on_their_source(both: Path) -> None:
    """Reproducible noise is another one once a byte of the code is; all else stays."""
    content = spec(privacy={"noise_multiplier": 4.0, "noise_secret": "reproducible"})
    first = gs.run(parse_spec(content)).model
    again = gs.run(parse_spec(content)).model
    assert all((first[part] == again[part]).all() for part in first)
    TOPOLOGIES.loaded.clear()
    (both / "my_graphs.py").write_text(TREE + "# changed\n")
    changed = gs.run(parse_spec(content)).model
    assert any((first[part] != changed[part]).any() for part in first)


def test_a_written_spec_is_read_as_it_was(both: Path) -> None:
    made = parse_spec(spec(algorithm={**GOSSIP, "topology": {"name": "tree", "arity": 3}}))
    again = read_text(write_spec(made))
    assert again == made
    assert again.algorithm.topology.arity == 3


def test_code_that_is_not_allowed_is_not_imported(site: Path) -> None:
    written(site, "My_Graphs", "1.2", {"tree": "my_graphs:Tree"}, "gossamer.topologies", my_graphs=BOOM)
    written(site, "my-deals", "0.3", {"last": "my_deals:Last"}, "gossamer.partitions", my_deals=BOOM)
    only = {"topology": spec(partition="iid"), "partition": spec(algorithm=GOSSIP)}
    for noun, (kind, name, who) in {
        "topology": (TOPOLOGIES, "tree", "my-graphs 1.2"),
        "partition": (PARTITIONS, "last", "my-deals 0.3"),
    }.items():
        found = kind.find(name)
        assert found is not None
        said = refusal(only[noun], modules=())
        assert f"{name} would have code run on this machine, of {who}; if that is the {noun} that was agreed on" in said
        assert f"--module {found.code}" in said
        assert not {"my_graphs", "my_deals"} & {*sys.modules}
        for allowed in (found.distribution, f"{found.distribution}=={found.version}", found.code):
            assert "RuntimeError: boom" in refusal(only[noun], modules=[allowed])


def test_a_federation_asks_its_parties_to_allow_them(both: Path) -> None:
    made = parse_spec(spec())
    assert own_code(made) == [one.code for _, one in of_others(made)]
    assert len(own_code(made)) == 2
    assert parse_spec(spec(), modules=own_code(made)) == made


def test_mistakes_are_said_as_of_any_other(both: Path) -> None:
    def topology(**keys: Any) -> dict[str, Any]:
        return spec(algorithm={**GOSSIP, "topology": {"name": "tree", **keys}})

    assert "unknown key algorithm.topology.aritty; did you mean arity?" in refusal(topology(aritty=3))
    assert "algorithm.topology.arity: input should be greater than or equal to 1, found 0" in refusal(topology(arity=0))
    assert "unknown name 'tre'; did you mean tree?" in refusal(spec(algorithm={**GOSSIP, "topology": "tre"}))
    assert "partition: unknown name 'lost'; did you mean last?" in refusal(spec(partition="lost"))
    assert build_graph("tree", 3, np.random.default_rng(0)).edges.tolist() == [[0, 1], [0, 2]]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return [[0, 1]]", "must be connected, found 6 components"),
        ("return [[0, 0]]", "an edge joins two different nodes, found (0, 0)"),
        ("return [[0, 99]]", "99"),
        ("return [0.5, 1]", "must give pairs of node numbers"),
        ("return 1 / 0", "the topology Tree cannot join 7 nodes: ZeroDivisionError: division by zero"),
    ],
)
def test_a_graph_that_is_none(site: Path, body: str, said: str) -> None:
    code = TREE.partition("        below")[0] + f"        {body}\n"
    written(site, "My_Graphs", "1.2", {"tree": "my_graphs:Tree"}, "gossamer.topologies", my_graphs=code)
    assert said in refusal(spec(partition="iid"))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return np.zeros(3, int)", "must give a node's number for each of"),
        ("return np.zeros(len(population))", "must give a node's number for each of"),
        ("return np.full(len(population), 7)", "must give node numbers from -1 (none) to 6, found 7 to 7"),
        ("return np.zeros(len(population), int)", "leaves node 1 of 7 without any"),
        ("return population.nothing", "the partition Last cannot deal to 7 nodes: AttributeError"),
    ],
)
def test_a_deal_that_is_none(site: Path, body: str, said: str) -> None:
    code = LAST.partition("        found = ")[0] + f"        {body}\n"
    written(site, "my-deals", "0.3", {"last": "my_deals:Last"}, "gossamer.partitions", my_deals=code)
    assert said in refusal(spec(algorithm=GOSSIP))


def test_what_is_registered_wrongly_is_named(site: Path) -> None:
    written(site, "My_Graphs", "1.2", {"tree": "my_graphs:np"}, "gossamer.topologies", my_graphs=TREE)
    assert "expected a class of settings that derives from" in refusal(spec(partition="iid"))
    written(site, "bold", "1.0", {"bush": "bold:Bush", "ring": "bold:Ring"}, "gossamer.topologies", bold=BOOM)
    with pytest.raises(SpecError, match=r"'ring' is a topology of gossamer itself, and bold 1\.0 registers it too"):
        TOPOLOGIES.find("bush")
    assert parse_spec(spec(partition="iid", algorithm={**GOSSIP, "topology": "ring"})).algorithm.topology.name == "ring"
    assert "bold" not in sys.modules
