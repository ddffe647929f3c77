"""What observers of whole runs learn, through the public door."""

import errno
import json
import math
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.reference.observers_slow import mu, mu_of_stretches
from tests.reference.observers_slow import rows as rows_of

import gossamer as gs
from gossamer.algorithms.increasing.server import GlobalModel
from gossamer.cli.main import main
from gossamer.experiment.audits.observers import NetworkPrivacy, composed, linear_system
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.runs.running import Run, sources_of
from gossamer.experiment.runs.trackers import Listeners
from gossamer.privacy.observers.sensitivity import EVERY, Participation
from gossamer.privacy.observers.system import LinearSystem, NotLinear, members_of, vectors_in
from gossamer.protocol.events import Completed, Received
from gossamer.protocol.trace import read_steps, write_step
from gossamer.report.leakage_map import drawer

RING = {
    "dataset": "digits",
    "algorithm": {"name": "d_psgd", "nodes": 5, "topology": "ring", "batch_size": 10, "updates_per_node": 4},
    "privacy": {"noise_multiplier": 1.0},
}


def accounted(capsys, tmp_path, spec, *options):
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(spec))
    code = main(["account", "--observers", str(path), "--json", *options])
    out, err = capsys.readouterr()
    assert code == 0, err
    return {(row["observer"], row["party"]): row for row in json.loads(out)["pairs"]}


def test_ring_of_five_after_four_synchronous_steps(capsys, tmp_path):
    """Derived by hand: 2 against everyone, 1.94 next door, sqrt(0.4985) two links away."""
    pairs = accounted(capsys, tmp_path, RING, "--observer", "everyone", "--observer", "node:node-0")
    for node in range(5):
        assert pairs["everyone", f"node-{node}"]["mu"] == pytest.approx(2.0)
    for node in (1, 4):
        assert 1.93 <= pairs["node:node-0", f"node-{node}"]["mu"] <= 1.95
        assert pairs["node:node-0", f"node-{node}"]["links"] == 1
    for node in (2, 3):
        assert pairs["node:node-0", f"node-{node}"]["mu"] < 0.71
        assert pairs["node:node-0", f"node-{node}"]["links"] == 2
    assert ("node:node-0", "node-0") not in pairs


def test_an_observer_of_several_parts_has_the_messages_of_each(capsys, tmp_path):
    """Whoever reads all messages learns 2 of a node, whatever else it knows, also where it alone is asked about."""
    pairs = accounted(capsys, tmp_path, RING, "--observer", "everyone+node:node-0")
    assert all(row["mu"] == pytest.approx(2.0) for row in pairs.values())
    alone, more = (
        accounted(capsys, tmp_path, RING, "--observer", one)[one, "node-2"]["mu"]
        for one in ("node:node-0", "node:node-0+link:node-2,node-3")
    )
    assert alone < 0.71
    assert more == pytest.approx(2.0)


@pytest.mark.parametrize(("steps", "least", "most"), [(12, 1.183, 1.184), (60, 1.183, 3**0.5), (200, 1.183, 3**0.5)])
def test_models_that_are_alike_after_many_averages_are_not_taken_for_one(capsys, tmp_path, steps, least, most):
    """Five models that differ, however little, tell five averages: 1.1832 in exact arithmetic, and 0.775 if one did."""
    muffliato = {**RING["algorithm"], "name": "muffliato", "updates_per_node": 3, "gossip_steps": steps}
    pairs = accounted(capsys, tmp_path, {**RING, "algorithm": muffliato}, "--observer", "final")
    assert all(least <= row["mu"] <= most * (1 + 1e-9) for row in pairs.values())


def test_steps_that_rounding_hides_beside_earlier_ones_are_refused(capsys, tmp_path):
    """Each message tells of its step, however short: at 1e-15 of the first ones it would be taken for nothing."""
    path = tmp_path / "spec.yaml"
    rate = {"schedule": "step", "initial": 0.1, "factor": 1e-15, "epochs": [0.05]}
    path.write_text(json.dumps({**RING, "algorithm": {**RING["algorithm"], "learning_rate": rate}}))
    assert main(["account", "--observers", str(path), "--observer", "node:node-0"]) == 2
    said = capsys.readouterr().err
    assert "found one 1.0e-15 times as long as another, which rounding hides; let learning rates fall less" in said
    assert "the guarantee against everyone stands" in said


def test_all_examples_of_a_person_move_a_gradient(capsys, tmp_path):
    budget = {"epsilon": 50, "delta": 1e-4, "rows_per_person": 3}
    pairs = accounted(capsys, tmp_path, {**RING, "budget": budget}, "--observer", "everyone")
    assert pairs["everyone", "node-1"]["mu"] == pytest.approx(3 * 2.0)


def test_persons_at_several_nodes_are_refused(capsys):
    spec = str(Path(__file__).parents[3] / "examples" / "visits-persons.yaml")
    assert main(["account", "--observers", spec, "--set", "partition=iid"]) == 2
    assert "all examples of a person are at one node, found some at several" in capsys.readouterr().err


def test_noise_that_is_not_secret_guarantees_nothing(capsys, tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps({**RING, "privacy": {"noise_multiplier": 1.0, "noise_secret": "reproducible"}}))
    assert main(["account", "--observers", str(path), "--observer", "everyone"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Guarantee: none for each example" in said
    assert "(gradients_fixed) and noise is secret" in said


UNITS = {
    "name": "graph_federated",
    "units": 2,
    "agents": 2,
    "local_steps": 1,
    "batch_size": 5,
    "step_size": 0.5,
    "rounds": 2,
    "topology": "line",
}


@pytest.mark.parametrize(
    "observers", [[], ["everyone"], ["coalition:server-0,server-1"]], ids=["nodes", "all", "worst"]
)
def test_pairs_as_a_map(tmp_path, observers):
    """Of servers that see sums without noise, some pairs are infinite, and then all."""
    pytest.importorskip("matplotlib", reason="needs the extra figures")
    (tmp_path / "spec.yaml").write_text(
        json.dumps({**RING, "algorithm": UNITS, "budget": {"epsilon": 8, "delta": 1e-4}, "privacy": {}})
    )
    command = ["account", "--observers", str(tmp_path / "spec.yaml"), *(f"--observer={one}" for one in observers)]
    for ending, begins in ((".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml"), (".csv", b"observer,party,")):
        assert main([*command, "--out", str(tmp_path / f"map{ending}")]) == 0
        assert (tmp_path / f"map{ending}").read_bytes().startswith(begins)
    drawn = (tmp_path / "map.svg").read_text()
    assert ("links between" in drawn) == (observers != ["everyone"])


def test_a_map_has_room_for_long_names_of_observers():
    heights = []
    for name in ("node:node-0", "coalition:" + ",".join(f"node-{place}" for place in range(9))):
        rows = [{"observer": name, "party": "node-9", "links": 1, "mu": 1.0, "epsilon": 2.0, "bound": "tight"}]
        drawn = drawer(Path("map.svg"))(rows, 3.0).decode()
        heights.append(float(drawn.split('height="')[1].split("pt")[0]))
    assert heights[0] == pytest.approx(3.2 * 72)
    assert heights[1] > heights[0] + 2 * 72  # 73 letters of 9 points take two inches more than ten


def test_a_link_that_no_update_goes_over_is_refused(capsys, tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(RING))
    for observer in ("link:node-0,node-2", "final+link:node-0,node-2"):
        assert main(["account", "--observers", str(path), "--observer", observer]) == 2
        said = capsys.readouterr().err
        assert "link:node-0,node-2: no update goes over a link between them; take two neighbours" in said


@pytest.fixture
def short_blocks(monkeypatch):
    """Have blocks of time of one draw a node, as runs of many nodes do."""
    monkeypatch.setattr("gossamer.experiment.audits.observers._DRAWS", 1)


@pytest.mark.usefixtures("short_blocks")
@pytest.mark.parametrize("name", ["gossip", "d_psgd", "muffliato", "push_sum"])
def test_coefficients_make_the_messages_of_the_run_itself(name):
    topology = "directed_ring" if name == "push_sum" else "ring"
    nodes = {"name": name, "nodes": 4, "topology": topology, "batch_size": 10}
    spec = gs.Experiment(
        dataset={"name": "digits"}, algorithm=nodes, privacy={"noise_multiplier": 1.0}, stop={"updates": 24}
    )
    prepared = prepare(spec)
    plan = plan_run(prepared)
    found, steps = linear_system(prepared, plan), []
    Run(prepared, plan, sources_of(prepared, plan), listeners=Listeners(watch=steps.append), simulated=True).go()
    events = [step.event for step in steps]
    released = np.array([one.released.values for one in events if isinstance(one, Completed)], np.float64)
    scale = plan.mechanisms["node-0"].normal.standard_deviation / 10
    vectors = [vector for one in events if isinstance(one, Received) for vector in vectors_in(one.message)]
    assert len(vectors) == len(found.seen) > 10
    assert len(found.blocks) == 5
    rows = rows_of(found, [(one.block, one.row) for one in found.seen])
    for vector, row in zip(vectors, rows, strict=True):
        expected = prepared.initial.values + row / scale @ released
        assert np.allclose(vector.values, expected, rtol=0, atol=1e-4 * np.abs(released).max())


@pytest.mark.usefixtures("short_blocks")
@pytest.mark.parametrize(
    "changes",
    [{}, {"faults": {"absences": [{"node": 2, "start": 2.0}]}}],
    ids=["all there", "one gone"],
)
def test_chunks_of_a_ring_are_what_the_run_sends_and_agree_with_brute_force(changes):
    """Also where a node falls silent, and the others cut their vectors into fewer chunks."""
    nodes = {"name": "allreduce", "nodes": 4, "batch_size": 10, "updates_per_node": 3, "timeout": 2.0}
    spec = gs.Experiment(dataset={"name": "digits"}, algorithm=nodes, privacy={"noise_multiplier": 1.0}, **changes)
    prepared = prepare(spec)
    plan = plan_run(prepared)
    system, steps = linear_system(prepared, plan), []
    Run(prepared, plan, sources_of(prepared, plan), listeners=Listeners(watch=steps.append), simulated=True).go()
    events = [step.event for step in steps]
    released = np.array([one.released.values for one in events if isinstance(one, Completed)], np.float64)
    scale = plan.mechanisms["node-0"].normal.standard_deviation / 10
    parts = (vector for one in events if isinstance(one, Received) for vector in vectors_in(one.message))
    chunks = [part for part in parts if part.values.dtype.kind == "f"]
    assert len(chunks) == len(system.seen) > 40
    assert len(system.blocks) >= 2
    first, rows = prepared.initial.values, rows_of(system, [(one.block, one.row) for one in system.seen])
    for chunk, one, row in zip(chunks, system.seen, rows, strict=True):
        start, end = one.entries
        left = chunk.values - (row / scale @ released)[start:end]
        times = np.round(left @ first[start:end] / max(first[start:end] @ first[start:end], 1e-30))
        assert np.allclose(left, times * first[start:end], rtol=0, atol=1e-4 * np.abs(released).max())
    owners = [draw.owner for draw in system.draws]
    cuts = sorted({cut for one in system.seen for cut in one.entries})
    assert len(cuts) > (5 if changes else 4)
    for observer, members in (("node:node-0", {"node-0"}), ("coalition:node-0,node-1", {"node-0", "node-1"})):
        each = []
        for stretch in pairwise(cuts):
            known = rows_of(system, system.seen_by(observer, stretch))
            known[:, [owner in members for owner in owners]] = 0.0
            each.append(known)
        found = system.against(observer)
        for party in {*prepared.names} - members:
            own = [number for number, owner in enumerate(owners) if owner == party]
            lengths = np.array([system.draws[number].moved for number in own])
            expected = mu_of_stretches(each, own, lengths, iter([range(len(own))]))
            assert found[party].most == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("nodes", [2, 3, 5, 6])
def test_a_member_of_a_ring_learns_of_others_by_the_links_between(nodes, capsys, tmp_path):
    """By hand: sqrt(T / k) of a node k links away, and sqrt(T) against everyone.

    A member is sent, of each chunk, the sum of those of the j nodes before it, for another j from 0 to n - 2, and later
    the sum of all. So it knows that of j and that of the n - 1 - j others. Of those in which a node is, the least has
    as many as there are links between, one way or the other, in each round, and the same chunk has it in each.
    """
    ring = {"name": "allreduce", "nodes": nodes, "batch_size": 10, "updates_per_node": 4}
    spec = {**RING, "algorithm": ring}
    pairs = accounted(capsys, tmp_path, spec, "--observer", "everyone", "--observer", "node:node-0")
    for node in range(1, nodes):
        assert pairs["everyone", f"node-{node}"]["mu"] == pytest.approx(2.0)
        expected = (4 / min(node, nodes - node)) ** 0.5
        assert pairs["node:node-0", f"node-{node}"]["mu"] == pytest.approx(expected)


@pytest.mark.some(3)
@pytest.mark.parametrize("silent", range(5))
def test_a_ring_tells_who_knows_more_no_less(silent):
    """Also where one falls silent half way: of links, nodes, coalitions, everyone, and models that are shown."""
    nodes = {"name": "allreduce", "nodes": 5, "batch_size": 10, "updates_per_node": 3, "timeout": 2.0}
    gone = {"absences": [{"node": silent, "start": 2.0}]}
    prepared = prepare(gs.Experiment(dataset="digits", algorithm=nodes, privacy={"noise_multiplier": 1.0}, faults=gone))
    system = linear_system(prepared, plan_run(prepared))
    chains = (
        (
            "node:node-0",
            "coalition:node-0,node-1",
            "coalition:node-0,node-1+link:node-2,node-3",
            "everyone+node:node-0",
        ),
        ("link:node-2,node-3", "everyone", "everyone+final"),
        ("final", "final+node:node-1", "everyone+final+node:node-1"),
    )
    for chain in chains:
        found = [system.against(observer) for observer in chain]
        for party in ("node-2", "node-3", "node-4"):
            assert all(less[party].least <= more[party].most * (1 + 1e-9) for less, more in pairwise(found))


ROUNDS = {
    "dataset": "digits",
    "algorithm": {"name": "increasing", "nodes": 4},
    "privacy": {"noise_multiplier": 1.0},
    "stop": {"updates": 40},
}


@pytest.mark.parametrize("speeds", [{}, {"scenario": {"name": "one_slow", "factor": 3.0}}], ids=["alike", "apart"])
def test_rounds_of_clients_are_what_the_run_sends_and_agree_with_brute_force(speeds):
    """Models of the server are the first one less the rounds in them; where clients are alike a client hears sums."""
    prepared = prepare(gs.Experiment(**ROUNDS, speeds=speeds))
    plan = plan_run(prepared)
    system, steps = linear_system(prepared, plan), []
    Run(prepared, plan, sources_of(prepared, plan), listeners=Listeners(watch=steps.append), simulated=True).go()
    events = [step.event for step in steps]
    released = np.array([one.released.values for one in events if isinstance(one, Completed)], np.float64)
    scale = plan.mechanisms["node-0"].normal.standard_deviation
    rows = rows_of(system, [(one.block, one.row) for one in system.seen])
    sent = [
        (type(one.message), vector) for one in events if isinstance(one, Received) for vector in vectors_in(one.message)
    ]
    assert len(sent) == len(rows) > 40
    for (kind, vector), row in zip(sent, rows, strict=True):
        expected = prepared.initial.values * (kind is GlobalModel) + row / scale @ released
        assert np.allclose(vector.values, expected, rtol=0, atol=1e-4 * np.abs(released).max())
    owners = [draw.owner for draw in system.draws]
    for observer, members in (("node:server", set()), ("node:node-0", {"node-0"}), ("link:server,node-1", set())):
        known = rows_of(system, system.seen_by(observer))
        known[:, [owner in members for owner in owners]] = 0.0
        found = system.against(observer)
        for party in {*prepared.names} - members:
            own = [number for number, owner in enumerate(owners) if owner == party]
            lengths = np.array([system.draws[number].moved for number in own])
            assert found[party].most == pytest.approx(
                mu(known, own, lengths, iter([range(len(own))])), rel=1e-6, abs=1e-6
            )
    if not speeds:
        rounds = len(owners) / 4
        assert system.against("node:node-0")["node-1"].most == pytest.approx((rounds / 3) ** 0.5)


@pytest.mark.parametrize("temporal", ["independent", "random_walk", "sqrt_toeplitz"])
def test_streams_of_servers_against_everyone_are_as_their_closed_form(temporal):
    """|C 1| D / s, which is sqrt(T (T+1) (2T+1) / 6) D / s for independent noise: `correlated_noise`."""
    rounds, agents = 5, 3
    spec = gs.Experiment(
        dataset={"name": "digits"},
        algorithm={
            "name": "graph_federated",
            "units": 4,
            "agents": agents,
            "local_steps": 1,
            "batch_size": 5,
            "step_size": 0.5,
            "rounds": rounds,
            "topology": "ring",
            "temporal": temporal,
        },
        privacy={"clip": 1.0},
        budget={"epsilon": 8, "delta": 1e-4},
    )
    prepared = prepare(spec)
    plan = plan_run(prepared)
    law = next(side.law for side in plan.sides.values() if hasattr(side, "law"))
    moved = 2 * 0.5 * 1.0 / agents / law.standard_deviation
    length = {
        "independent": math.sqrt(rounds * (rounds + 1) * (2 * rounds + 1) / 6),
        "random_walk": math.sqrt(rounds),
    }.get(temporal, law.factorisation.sensitivity)
    system = linear_system(prepared, plan)
    for bounds in system.against("everyone").values():
        assert bounds.most == pytest.approx(moved * length, rel=1e-9)
    server = prepared.cast.servers[0]
    own = [name for name, unit in prepared.units.items() if unit == prepared.units[server] and name != server]
    assert all(system.against(f"node:{server}")[name].most == math.inf for name in own)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"optimizer": "adam"}, "product of vectors, as in adaptive optimizers"),
        (
            {"name": "fedbuff", "topology": None, "updates_per_node": None},
            "asking for something else: noise of a server",
        ),
        (
            {**dict.fromkeys(("topology", "batch_size", "updates_per_node")), "name": "increasing"}
            | {"round_update": "sequential"},
            "asking for something else: noise of a server",
        ),
    ],
)
def test_what_is_not_linear_is_refused_in_a_line(capsys, tmp_path, changes, said):
    algorithm = {key: value for key, value in {**RING["algorithm"], **changes}.items() if value is not None}
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps({**RING, "algorithm": algorithm}))
    assert main(["account", "--observers", str(path)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("the guarantee against everyone stands") == 1
    assert "Traceback" not in error


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """A run whose exchanges are at random times, and what each of its nodes wrote of it."""
    folder = tmp_path_factory.mktemp("traced")
    gossip = {"name": "gossip", "nodes": 4, "topology": "ring", "batch_size": 10, "updates_per_node": 6}
    spec = gs.Experiment(dataset={"name": "digits"}, algorithm=gossip, privacy={"noise_multiplier": 1.0})
    gs.run(spec, trace=folder / "all")
    prepared = prepare(spec)
    with (folder / "all").open("rb") as file:
        steps = list(read_steps(file))
    for name in prepared.names:
        with (folder / name).open("wb") as file:
            for step in steps:
                if step.node == name:
                    write_step(file, step)
    return prepared, {name: folder / name for name in prepared.names}


def test_traces_of_each_node_tell_what_the_whole_run_does(traced):
    prepared, traces = traced
    plan = plan_run(prepared)
    known, found = linear_system(prepared, plan), linear_system(prepared, plan, traces=traces)
    assert len(found.seen) == len(known.seen) > 20
    for observer in ("everyone", "node:node-0", "link:node-1,node-2", "final"):
        expected = known.against(observer)
        for party, bounds in found.against(observer).items():
            assert bounds.most == pytest.approx(expected[party].most, rel=1e-9, abs=1e-8)


def test_a_federations_folder_is_taken_with_all_its_traces(traced, capsys, tmp_path):
    """Those of a simulation, which parties might have made: the same figures as of the spec."""
    pytest.importorskip("cryptography", reason="needs the extra secure")
    from gossamer.cli.federation.local_federation import LocalFederation

    prepared, traces = traced
    out = tmp_path / "federation"
    LocalFederation.found(prepared.experiment, out, "mqtt://127.0.0.1:1")

    def refused(folder: Path, *options: str) -> str:
        assert main(["account", "--observers", str(folder), *options]) == 2
        return capsys.readouterr().err

    assert "expected a trace of each party (--trace), found none of node-0, node-1, node-2, node-3" in refused(out)
    for name, path in traces.items():
        (out / name / "trace.bin").write_bytes(path.read_bytes())
    assert main(["account", "--observers", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = NetworkPrivacy.of(prepared).as_dict()
    for row, known in zip(found["pairs"], expected["pairs"], strict=True):
        assert (row["observer"], row["party"], row["links"]) == (known["observer"], known["party"], known["links"])
        assert (row["mu"], row["epsilon"]) == pytest.approx((known["mu"], known["epsilon"]), rel=1e-6)
    with (out / "node-2/trace.bin").open("ab") as file:
        file.write(bytes(3))
    assert "node-2/trace.bin: the trace ends inside a step; parties write" in refused(out)
    assert "--set is for specs, and the run of a folder is over" in refused(out, "--set", "seed=1")
    assert "found that of one party, which does not know what others sent" in refused(out / "node-0")


def test_traces_that_all_end_early_are_refused(traced, tmp_path):
    """They fit each other, and what was sent after would be learned of nobody; no less of nodes without a last step."""
    prepared, traces = traced
    plan = plan_run(prepared)
    for name, path in traces.items():
        with path.open("rb") as file, (tmp_path / name).open("wb") as out:
            write_step(out, next(read_steps(file)))
    with pytest.raises(NotLinear, match="until nodes end, found none of the end of node-0, node-1, node-2, node-3"):
        linear_system(prepared, plan, traces={name: tmp_path / name for name in traces})


@pytest.mark.parametrize("whose", ["node-0", "stranger"])
def test_a_trace_in_the_place_of_another_is_refused_by_its_name(traced, tmp_path, whose):
    prepared, traces = traced
    with traces["node-0"].open("rb") as file, (tmp_path / "node-1").open("wb") as out:
        for step in read_steps(file):
            write_step(out, replace(step, node=whose))
    with pytest.raises(NotLinear, match=f"expected steps of node-1 in its trace, found those of {whose}"):
        linear_system(prepared, plan_run(prepared), traces={**traces, "node-1": tmp_path / "node-1"})


@pytest.mark.parametrize("lost", ["last", "first"])
def test_traces_with_steps_missing_are_refused(traced, tmp_path, lost):
    prepared, traces = traced
    with traces["node-1"].open("rb") as file:
        steps = list(read_steps(file))
    with (tmp_path / "node-1").open("wb") as file:
        for step in steps[:-20] if lost == "last" else steps[2:]:
            write_step(file, step)
    with pytest.raises(NotLinear, match="received in a trace of its sender" if lost == "last" else "steps missing"):
        linear_system(prepared, plan_run(prepared), traces={**traces, "node-1": tmp_path / "node-1"})


CHAIN = {**RING["algorithm"], "topology": "line", "nodes": 4, "updates_per_node": 3}
RUNS = {
    "rounds": {**RING, "algorithm": CHAIN},
    "exchanges": {**RING, "algorithm": {**CHAIN, "name": "gossip"}},
    "pairwise": {**RING, "algorithm": {**CHAIN, "noise": "pairwise"}},
    "persons": {**RING, "algorithm": CHAIN, "budget": {"epsilon": 50, "delta": 1e-4, "rows_per_person": 3}},
    "chunks": {**RING, "algorithm": {"name": "allreduce", "nodes": 4, "batch_size": 10, "updates_per_node": 3}},
    "server": ROUNDS,
    **{
        where: {
            **RING,
            "algorithm": {**UNITS, "gradient_at": where},
            "privacy": {},
            "budget": {"epsilon": 8, "delta": 1e-4},
        }
        for where in ("hidden", "released")
    },
}


@pytest.mark.parametrize("run", RUNS)
def test_the_bound_without_a_system_is_never_below_what_an_observer_learns(run):
    """|P D| is at most |D|; infinite where it has to be. Against everyone independent noise attains it."""
    prepared = prepare(gs.Experiment(**RUNS[run]))
    plan = plan_run(prepared)
    system = linear_system(prepared, plan)
    names = [*prepared.names, *prepared.cast.servers]
    others = names[-1], *names[1:-1]
    observers = ["everyone", "final", f"link:{names[0]},{names[-1]}", "everyone+coalition:" + ",".join(others)]
    for observer in (*observers, *(f"node:{name}" for name in names)):
        for draws in (EVERY, Participation(1)):
            most, known = composed(prepared, plan, observer, draws), system.against(observer, draws, loose=0.01)
            for party in known.keys() - members_of(observer, names):
                assert known[party].least <= most[party].most * (1 + 1e-9)
                assert run in ("hidden", "released") or most[party].most < math.inf
    learnt, most = system.against("everyone"), composed(prepared, plan, "everyone", EVERY)
    if run not in ("exchanges", "pairwise", "server", "hidden"):  # of exchanges the last draws are not sent
        assert {name: one.most for name, one in learnt.items()} == pytest.approx(
            {name: most[name].most for name in learnt}
        )
    if run == "pairwise":  # whoever knows all other nodes' noise has no more to learn
        worst = system.against("everyone+coalition:" + ",".join(names[1:]))[names[0]]
        assert worst.most == pytest.approx(most[names[0]].most)


def test_brute_force_is_never_above_the_bound_without_a_system():
    prepared = prepare(gs.Experiment(**RUNS["pairwise"]))
    plan = plan_run(prepared)
    system = linear_system(prepared, plan)
    known = rows_of(system, system.seen_by("node:node-0"))
    known[:, ["node-0" in (draw.owner, draw.also) for draw in system.draws]] = 0.0
    own = [number for number, draw in enumerate(system.draws) if draw.owner == "node-1" and draw.moved]
    lengths = np.array([system.draws[number].moved for number in own])
    found = mu(known, own, lengths, iter([range(len(own))]))
    assert 0.9 * found <= found <= composed(prepared, plan, "node:node-0", EVERY)["node-1"].most * (1 + 1e-9)


@pytest.mark.parametrize(("options", "most"), [((), 2.0), (("--in-draws", "1"), 1.0), (("--apart", "3"), 2**0.5)])
def test_observers_who_are_not_answered_in_time_learn_at_most_what_is_released(capsys, tmp_path, options, most):
    """By hand: four releases of mu 1, or one of them."""
    pairs = accounted(capsys, tmp_path, RING, "--within", "0s", *options)
    assert len(pairs) == 20
    assert {row["bound"] for row in pairs.values()} == {"at most"}
    assert [row["mu"] for row in pairs.values()] == pytest.approx([most] * 20)
    command = ["account", "--observers", str(tmp_path / "spec.yaml"), "--within", "0s", *options]
    assert main([*command, "--out", str(tmp_path / "pairs.csv")]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "Time was over for 5 of 5 observers: they learn at most what is told" in told
    assert "Give more time (--within), or name some of them (--observer)" in told
    assert f"1 link away 10 at most {most:.4g} at most" in told
    assert "links,mu,epsilon,bound" in (tmp_path / "pairs.csv").read_text()
    assert (tmp_path / "pairs.csv").read_text().count("at most") == 20
    pytest.importorskip("matplotlib", reason="needs the extra figures")
    assert main([*command, "--out", str(tmp_path / "map.svg")]) == 0
    drawn = (tmp_path / "map.svg").read_text()
    assert "Observers with dots, and ringed pairs" in drawn
    assert "the guarantee, the dashed line, does" in drawn


@pytest.mark.parametrize(
    ("options", "mu", "said"),
    [
        ("--in-draws 3", 3**0.5, "at most 3 of a node's draws, which"),
        ("--apart 2", 2**0.5, "any of a node's draws that are 2 or more apart, which"),
        ("--apart 3 --in-draws 1", 1.0, "at most 1 of a node's draws that are 3 or more apart, which"),
        ("", 2.0, None),
    ],
)
def test_draws_that_one_example_is_taken_to_be_in_are_counted_and_told(capsys, tmp_path, options, mu, said):
    """By hand: of four releases of mu 1, everyone sees as many as there are in the pattern."""
    command = ["--observer", "everyone", *options.split()]
    pairs = accounted(capsys, tmp_path, RING, *command)
    assert all(mu * (1 - 1e-12) <= row["mu"] <= mu * (1 + 5e-4) for row in pairs.values())
    assert main(["account", "--observers", str(tmp_path / "spec.yaml"), *command]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert (f"is taken to be in {said} no sampling sees to" in told) if said else "is taken to be" not in told


def test_figures_of_agents_are_said_to_be_of_agents_where_the_guarantee_is_for_units(capsys, tmp_path):
    algorithm, budget = {**UNITS, "noise": "random"}, {"epsilon": 8, "delta": 1e-4}
    accounted(capsys, tmp_path, {**RING, "algorithm": algorithm, "budget": budget, "privacy": {}})
    assert main(["account", "--observers", str(tmp_path / "spec.yaml"), "--observer", "everyone"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "for each federated unit, against" in told
    assert "what single observers learn of one agent of one if all other gradients stay" in told


def test_of_who_makes_no_update_nothing_is_learnt(capsys, tmp_path):
    example = Path(__file__).parents[3] / "examples" / "digits-gossip.yaml"
    command = ["account", "--observers", str(example), "--set", "stop.virtual_seconds=0.5"]
    assert main([*command, "--json"]) == 0
    pairs = json.loads(capsys.readouterr().out)["pairs"]
    assert [row["mu"] for row in pairs] == [0.0] * 56
    pytest.importorskip("matplotlib", reason="needs the extra figures")
    assert main([*command, "--out", str(tmp_path / "map.png")]) == 0


def test_once_time_is_over_no_further_system_is_begun(capsys, tmp_path, monkeypatch):
    begun = []
    monkeypatch.setattr("gossamer.experiment.audits.observers.MOST", 1)  # one observer at a time
    monkeypatch.setattr(
        "gossamer.experiment.audits.observers.linear_system",
        lambda *given, **more: begun.append(given) or linear_system(*given, **more),
    )
    pairs = accounted(capsys, tmp_path, RING, "--within", "0s")
    assert {row["bound"] for row in pairs.values()} == {"at most"}
    assert len(begun) == 1


@pytest.mark.parametrize("more", [{"optimizer": "adam"}, {"name": "fedavg"}])
def test_a_run_that_is_not_linear_is_refused_however_little_time_there_is(capsys, tmp_path, more):
    algorithm = {"name": "gossip", "nodes": 3, **more} | ({"rounds": 2} if "name" in more else {"updates_per_node": 2})
    spec = {"dataset": "digits", "algorithm": algorithm, "privacy": {"noise_multiplier": 1.0, "clip": 1.0}}
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    assert main(["account", "--observers", str(tmp_path / "spec.yaml"), "--within", "0s"]) == 2
    assert "the guarantee against everyone stands" in capsys.readouterr().err


def test_observers_who_are_answered_in_time_are_told_what_they_learn(capsys, tmp_path, monkeypatch):
    """The second one takes for ever, and is left alone."""
    against = LinearSystem.against

    def slow(system, observer, *options):
        time.sleep(60.0 * (observer == "node:node-1"))
        return against(system, observer, *options)

    monkeypatch.setattr(LinearSystem, "against", slow)
    pairs = accounted(capsys, tmp_path, RING, "--within", "6s")
    assert {observer for (observer, _), row in pairs.items() if row["bound"] == "at most"} == {"node:node-1"}
    assert pairs["node:node-0", "node-2"]["mu"] < 0.71
    assert pairs["node:node-1", "node-3"]["mu"] == pytest.approx(2.0)


@pytest.mark.parametrize("where", ["gossamer.report.leakage_map.to_csv", "gossamer.processes.ProcessPoolExecutor"])
def test_what_the_system_refuses_is_said_of_traces_only_where_there_are_some(capsys, tmp_path, monkeypatch, where):
    (tmp_path / "spec.yaml").write_text(json.dumps(RING))

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(where, full)
    command = ["account", "--observers", str(tmp_path / "spec.yaml"), "--within", "100000000000h"]
    assert main([*command, "--out", str(tmp_path / "pairs.csv")]) != 0
    said = capsys.readouterr().err
    assert "No space left on device" in said
    assert "trace" not in said.lower()
    assert [*tmp_path.iterdir()] == [tmp_path / "spec.yaml"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--observer", "coalition:node-0,node-1,node-2,node-3,node-4"), "it has all examples of the run itself"),
        (("--observer", "server"), "servers are nodes, as node:server or node:server-0; found 'server'"),
        (("--observer", "aggregator"), "servers are nodes, as node:server"),
        (("--out", "pairs.txt"), "pairs.txt: expected a file for pairs that ends in .csv, .pdf, .svg or .png"),
        (("--out", "."), "choose another --out"),
        (("--out", "no-such-folder/pairs.csv"), "no-such-folder/pairs.csv: No such file or directory"),
    ],
)
def test_what_would_come_to_nothing_is_refused_before_the_work(capsys, tmp_path, monkeypatch, options, said):
    (tmp_path / "spec.yaml").write_text(json.dumps(RING))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gossamer.experiment.audits.observers.linear_system", None)
    assert main(["account", "--observers", "spec.yaml", *options]) == 2
    assert said in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == [tmp_path / "spec.yaml"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--observers spec.yaml --delta 1e-3", "--delta is of releases, and --observers takes all from the spec"),
        ("--observers spec.yaml --noise-multiplier 9", "--noise-multiplier is of releases"),
        ("--steps 3 --delta 1e-5 --sampling-rate 1 --noise-multiplier 1 --in-draws 2", "--in-draws is for --observers"),
        ("--steps 3 --delta 1e-5 --sampling-rate 1 --noise-multiplier 1 --apart 2", "--apart is for --observers"),
    ],
)
def test_options_that_would_change_nothing_are_refused(capsys, options, said):
    assert main(["account", *options.split()]) == 2
    assert said in capsys.readouterr().err
