"""Snapshots of simulators: one that is restored goes on exactly as the one that the snapshot was taken of."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from tests.oracle.specs import SPECS, Spec

from gossamer.algorithms.table import ALGORITHMS
from gossamer.errors import RunWarning, SpecError
from gossamer.experiment.preparation.ending import Keeper, Observer, drive
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import Sources, nodes_of, prepare, sides_of
from gossamer.experiment.preparation.private_scale import scaled
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.protocol.encoding import decode, encode
from gossamer.protocol.snapshots import decode_snapshot, encode_snapshot, restore
from gossamer.protocol.trace import write_step
from gossamer.randomness import stream
from gossamer.runtimes.simulator import Simulator
from gossamer.sides.pool import BlankSides

_LEVEL = {"clip": 1.0, "noise_multiplier": 1.0}
_GOSSIP = {"nodes": 4, "batch_size": 32, "updates_per_node": 4}
_CLIENTS = {"nodes": 6, "local_steps": 2, "batch_size": 8}
_BY_SERVER = {"noise_by": "server", "trusted": "server"}
_AWAY = {"availability": {"name": "day_and_night", "day": 7.0, "there": 0.7}}
MORE: dict[str, Spec] = {
    "d_psgd": {"algorithm": {"name": "d_psgd", **_GOSSIP}, "privacy": _LEVEL},
    "push_sum": {"algorithm": {"name": "push_sum", **_GOSSIP}, "privacy": _LEVEL, "links": {"loss": 0.1}},
    "muffliato": {"algorithm": {"name": "muffliato", **_GOSSIP}, "privacy": _LEVEL, "links": {"loss": 0.1}},
    "gossip-nights": {
        "algorithm": {"name": "gossip", **_GOSSIP, "updates_per_node": 20},
        "privacy": _LEVEL,
        "faults": _AWAY,
    },
    "fedavg": {"algorithm": {"name": "fedavg", **_CLIENTS, "rounds": 3}, "privacy": _LEVEL},
    "fedavg-secret-cohorts": {
        "algorithm": {
            **{"name": "fedavg", "rounds": 5, "clients_per_round": 3, "cohorts": "secret", **_CLIENTS, **_BY_SERVER}
        },
        "privacy": {"clip": {"policy": "quantile"}, "noise_multiplier": 1.0},
    },
    "fedavg-masked": {
        "algorithm": {"name": "fedavg", **_CLIENTS, "rounds": 3, "masking": {"name": "secure", "honest": 0.7}},
        "privacy": {"clip": 0.5, "noise_multiplier": 1.0},
    },
    "fedbuff": {
        "algorithm": {"name": "fedbuff", **_CLIENTS, **_BY_SERVER, "buffer": 3, "updates_per_node": 4},
        "privacy": _LEVEL,
        "speeds": {"name": "lognormal"},
        "faults": _AWAY,
    },
    "fedasync": {
        "algorithm": {"name": "fedasync", **_CLIENTS, "privacy_unit": "example", "updates_per_node": 3},
        "privacy": _LEVEL,
    },
    "central": {"algorithm": {"name": "central", "batch_size": 32, "updates_per_node": 9}, "privacy": _LEVEL},
    "local": {"algorithm": {"name": "local", **_GOSSIP}, "privacy": _LEVEL},
    "links": {
        "algorithm": {"name": "asgd", "nodes": 4, "batch_size": 32, "updates_per_node": 5},
        "privacy": "none",
        "links": {"bandwidth": 20000.0, "exceptions": [{"node": 1, "latency": 0.5, "bandwidth": 9000.0}]},
    },
}
ALL = {**SPECS, **{name: {"dataset": "digits", "seed": 7, **spec} for name, spec in MORE.items()}}


class _Made:
    """A fresh simulator of a spec, and the trace that it leaves."""

    def __init__(self, spec: Spec) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RunWarning)
            prepared = prepare(parse_spec(spec))
            self.plan = plan_run(prepared)
        is_scaled = prepared.scaled_privately
        self.prepared = scaled(prepared, self.plan, Sources(5)).prepared if is_scaled else prepared

    def __call__(self) -> tuple[Simulator, io.BytesIO]:
        prepared, trace = self.prepared, io.BytesIO()
        simulator = Simulator(
            nodes_of(prepared, self.plan),
            sides_of(prepared, self.plan, Sources(5)),
            prepared.world,
            watch=lambda step: write_step(trace, step),
            count=prepared.count,
            staleness=prepared.algorithm.figures.staleness,
        )
        return simulator, trace


class _Cutting(Keeper):
    """Calls a function after each of some numbers of events, and otherwise only counts."""

    due = 0.0

    def __init__(self, cuts: dict[int, Any], at: Callable[[], Any]) -> None:
        self.cuts, self.at, self.events = cuts, at, 0

    def keep(self) -> None:
        if self.events in self.cuts:
            self.cuts[self.events] = self.at()
        self.events += 1


def kept(simulator: Simulator) -> bytes:
    return b"".join(encode_snapshot(simulator))


def state(simulator: Simulator) -> bytes:
    """All that changes, whatever objects it is in twice."""
    return spelt(*decode(kept(simulator)))


def spelt(value: Any, table: list[Any]) -> bytes:
    """A value as bytes, with objects of its table wherever they are in it."""
    objects: list[bytes] = []

    def of(one: Any) -> Any:
        if isinstance(one, dict):
            return objects[one[None]] if None in one else {of(key): of(content) for key, content in one.items()}
        return type(one)(map(of, one)) if isinstance(one, list | tuple) else one

    for entry in table:
        objects.append(encode(of(entry)))
    return encode(of(value))


@pytest.mark.some(8)
@pytest.mark.parametrize("name", ALL)
def test_a_restored_simulator_goes_on_with_the_same_bytes(name: str) -> None:
    made = _Made(ALL[name])
    simulator, trace = made()
    counted = _Cutting({}, lambda: None)
    ended = drive(simulator, made.plan.stop, Observer(), counted)
    whole, end = trace.getvalue(), state(simulator)

    drawn = stream(3, name).integers(0, counted.events, 3)
    places = {int(place): None for place in (*drawn, counted.events - 2)}  # the end is awaited in a way of its own
    simulator, trace = made()
    cutting = _Cutting({0: None, **places}, lambda: (kept(simulator), trace.tell()))
    drive(simulator, made.plan.stop, Observer(), cutting)
    assert trace.getvalue() == whole, "a snapshot changes nothing"

    for snapshot, length in cutting.cuts.values():
        back, rest = made()
        restore(back, decode_snapshot(snapshot, back))
        assert kept(back) == snapshot
        assert drive(back, made.plan.stop, Observer()) == ended
        assert rest.getvalue() == whole[length:]
        assert state(back) == end


def test_every_algorithm_is_among_these() -> None:
    assert {spec["algorithm"]["name"] for spec in ALL.values()} == set(ALGORITHMS)


def test_data_sides_that_cannot_be_kept_are_refused() -> None:
    made = _Made(ALL["gossip"])
    simulator = Simulator(nodes_of(made.prepared, made.plan), BlankSides(), made.prepared.world)
    with pytest.raises(SpecError, match="the state of BlankSides cannot be kept; run without checkpoints"):
        kept(simulator)
