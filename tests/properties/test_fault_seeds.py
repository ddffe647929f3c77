"""Seeds of faults: real nodes pass them, planted bugs do not, and what fails is short."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any

import pytest
from tests.reference.failing import first_failure
from tests.reference.planted_bugs import BUGS
from tests.sampling import examples

from gossamer.algorithms.table import ALGORITHMS
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.faults import hosts
from gossamer.faults.schedules import Crash, Fate, FaultSchedule, NetworkPartition, OldCopy, Sieve, shortened
from gossamer.faults.trials import MOST_EVENTS, Failure, Trial

SAMPLES, UNITS = {"noise_multiplier": 1.0}, {"standard_deviation": 1.0}
SPECS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gossip": ({"name": "gossip"}, SAMPLES),
    "allreduce": ({"name": "allreduce"}, SAMPLES),
    "audp": ({"name": "audp"}, SAMPLES),
    "mapa": ({"name": "mapa"}, SAMPLES),
    "graph_federated": ({"name": "graph_federated"}, UNITS),
    "masked": ({"name": "graph_federated", "masking": "secure"}, UNITS),
    "increasing": ({"name": "increasing"}, SAMPLES),
    "fedbuff": ({"name": "fedbuff"}, SAMPLES),
    "fedasync": ({"name": "fedasync"}, SAMPLES),
    "fedavg": ({"name": "fedavg"}, SAMPLES),
    "local": ({"name": "local"}, SAMPLES),
    "central": ({"name": "central"}, SAMPLES),
    "d_psgd": ({"name": "d_psgd"}, SAMPLES),
    "push_sum": ({"name": "push_sum"}, SAMPLES),
}
OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gossip in pairs of two sides": ({"name": "gossip", "exchange": "bipartite", "topology": "star"}, SAMPLES),
    "several gossip steps": ({"name": "muffliato"}, SAMPLES),
    "all wait for one": ({"name": "d_psgd", "topology": "star"}, {**SAMPLES, "clip": {"policy": "quantile"}}),
    "shares that go round": ({"name": "push_sum", "topology": "directed_ring"}, SAMPLES),
    "graphs that change": ({"name": "push_sum", "topology": {"schedule": ["random_matchings", "star"]}}, SAMPLES),
    "edges that wait": ({"name": "audp", "staleness": {"bound": 1, "on_stale": "wait"}}, SAMPLES),
    "stale gradients dropped": ({"name": "audp", "staleness": {"bound": 1, "on_stale": "drop"}}, SAMPLES),
    "no noise": ({"name": "asgd"}, {"mechanism": "none"}),
    "noise with a pure epsilon": ({"name": "gossip"}, {"mechanism": "l2_laplace", "epsilon": 1.0}),
    "a clip that follows a quantile": ({"name": "gossip"}, {**SAMPLES, "clip": {"policy": "quantile"}}),
    "momentum of each node": ({"name": "gossip", "optimizer": "momentum"}, SAMPLES),
    "Adam of each node": ({"name": "allreduce", "optimizer": "adam"}, SAMPLES),
    "Adam of a server": ({"name": "audp", "optimizer": "adam"}, SAMPLES),
    "a server that adds the noise": ({"name": "fedavg", "noise_by": "server", "trusted": "server"}, SAMPLES),
    "more clients than a round needs": ({"name": "fedavg", "clients_per_round": 2, "over_selection": 1.5}, SAMPLES),
    "the first updates that a server noises": (
        {"name": "fedavg", "noise_by": "server", "trusted": "server", "clients_per_round": 2, "over_selection": 1.5},
        SAMPLES,
    ),
    "a server that draws in secret": (
        {"name": "fedavg", "noise_by": "server", "trusted": "server", "cohorts": "secret", "clients_per_round": 5},
        SAMPLES,
    ),
    "updates that a server counts": (
        {"name": "fedavg", "noise_by": "server", "trusted": "server"},
        {**SAMPLES, "clip": {"policy": "quantile"}},
    ),
    "updates of secret cohorts that a server counts": (
        {"name": "fedavg", "noise_by": "server", "trusted": "server", "cohorts": "secret", "clients_per_round": 5},
        {**SAMPLES, "clip": {"policy": "quantile"}},
    ),
    "buffers that a server noises": ({"name": "fedbuff", "noise_by": "server", "trusted": "server"}, SAMPLES),
    "noisy steps in rounds": ({"name": "fedavg", "privacy_unit": "example", "local_momentum": 0.5}, SAMPLES),
    "noisy steps in buffers": ({"name": "fedbuff", "privacy_unit": "example", "proximal": 0.1}, SAMPLES),
    "noisy steps of whole models": ({"name": "fedasync", "privacy_unit": "example"}, SAMPLES),
    "momentum of a server": ({"name": "fedbuff", "server_optimizer": "momentum"}, SAMPLES),
    "random noise on links": ({"name": "graph_federated", "noise": "random"}, UNITS),
    "servers that wait for nobody": ({"name": "graph_federated", "synchronous": False, "timeout": 3.0}, UNITS),
    "rounds of averaging": ({"name": "graph_federated", "consensus": 2}, UNITS),
    "noise that clients share": ({"name": "fedavg", "masking": {"name": "secure", "honest": 0.9}}, SAMPLES),
    "buffers that clients share the noise of": (
        {"name": "fedbuff", "masking": {"name": "secure", "honest": 0.9}},
        SAMPLES,
    ),
    "noise of agents": ({"name": "graph_federated", "masking": "secure"}, {**UNITS, "agent_noise": 0.5}),
    "aggregators": ({"name": "increasing", "aggregators": [2]}, SAMPLES),
    "parts of a model": ({"name": "increasing", "parts": 2}, SAMPLES),
    "a clipped sum": ({"name": "increasing", "round_update": "clipped_sum"}, SAMPLES),
}


def test_every_algorithm_is_driven_through_faults() -> None:
    driven = {id(ALGORITHMS[algorithm["name"]]) for algorithm, _ in SPECS.values()}
    assert driven == {id(algorithm) for algorithm in ALGORITHMS.values()}


@cache
def trial(name: str) -> Trial:
    algorithm, privacy = {**SPECS, **OTHERS}[name]
    return Trial.of(parse_spec({"algorithm": algorithm, "privacy": privacy}))


@cache
def story_of(seed: int) -> tuple[str, ...]:
    story: list[str] = []
    trial("gossip").problem(trial("gossip").schedule(seed), story.append)
    return tuple(story)


@pytest.mark.parametrize("name", SPECS)
def test_no_seed_fails(name: str) -> None:
    failure = first_failure(trial(name), range(examples(50)))
    assert failure is None, str(failure)


@pytest.mark.some(9)
@pytest.mark.parametrize("name", OTHERS)
def test_no_seed_of_other_settings_fails(name: str) -> None:
    failure = first_failure(trial(name), range(examples(15)))
    assert failure is None, str(failure)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_no_seed_of_many_of_other_settings_fails(name: str) -> None:
    failure = first_failure(trial(name), range(500))
    assert failure is None, str(failure)


@pytest.mark.some(3)
@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_found_and_shortened(bug: str) -> None:
    """Within 200 seeds, and to ten faults at most, and by the check that is about them."""
    instead, said = BUGS[bug]
    failure = first_failure(Trial(trial("gossip").runs, **instead), range(200))
    assert failure is not None
    assert len(failure.schedule.faults) <= 10, str(failure)
    assert re.search(said, failure.problem), str(failure)
    assert trial("gossip").problem(failure.schedule) is None  # the bug is to blame


def test_seeds_have_faults_of_every_kind_and_runs_are_small() -> None:
    """Of 200 seeds: some of each kind, and crashes at any instant, with torn writes, for ever too."""
    schedules = [trial("gossip").schedule(seed) for seed in range(200)]
    crashes = [crash for schedule in schedules for crash in schedule.of(Crash)]
    fates = [fault for schedule in schedules for fault in schedule.faults if isinstance(fault, Fate)]
    assert {len(fate.delays) for fate in fates} == {0, 1, 2}
    assert any(isinstance(fault, NetworkPartition) for schedule in schedules for fault in schedule.faults)
    sieves = [sieve for schedule in schedules for sieve in schedule.of(Sieve)]
    assert {sieve.loses for sieve in sieves} == {"messages", "acknowledgements", 120}
    assert {math.isinf(sieve.end) for sieve in sieves} == {True, False}
    assert any(isinstance(fault, OldCopy) for schedule in schedules for fault in schedule.faults)
    assert {crash.instant for crash in crashes} >= {0, 1, 2, 3, 4}
    assert {crash.kept for crash in crashes} == {0, 1, 2}
    assert {crash.away for crash in crashes} >= {0.01, float("inf")}
    for name in SPECS:
        for run in trial(name).runs:
            assert len(run.nodes) <= 6
            assert run.prepared.objective.size <= 8
    assert MOST_EVENTS <= 300


@pytest.mark.parametrize(
    "doing", ["staging an input", "committing", "putting a frame on the link", "charging a release", "drawing noise"]
)
def test_processes_are_killed_at_every_instant(doing: str) -> None:
    """Within 200 seeds, before each of the things that last or that others see."""
    for seed in range(200):
        if any(f"killed before {doing}" in line for line in story_of(seed)):
            return
    pytest.fail(f"nobody was killed before {doing}")


def test_an_old_copy_that_is_believed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the counters of peers not compared, the copy would contradict them."""
    monkeypatch.setattr(hosts, "forgotten", lambda links, said: {})
    failure = first_failure(trial("gossip"), range(100))
    assert failure is not None
    assert "nobody knows more than an old copy of" in failure.problem


@pytest.mark.parametrize("loses", ["messages", "acknowledgements", 120])
def test_a_party_that_is_heard_and_not_reached_stops_and_goes_on(loses: str | int) -> None:
    """Nothing that counts arrives for 30 seconds: who is alone is charged nothing, and then all goes on."""
    told: list[str] = []
    assert trial("gossip").problem(FaultSchedule((Sieve(1.0, 31.0, loses),), chunks=False), told.append) is None
    assert any("lost" in line for line in told)


def test_a_masked_sum_goes_on_after_nobody_was_reached_in_two() -> None:
    """Who was lost in a sum, so not asked in the next, is asked once that cannot do without: else all wait for ever."""
    unreached = FaultSchedule((Crash(34, 0, 2, 2.0), Sieve(4.29, 22.9, "messages", "server")), variant=1, every=256)
    assert trial("buffers that clients share the noise of").problem(unreached) is None


def test_a_schedule_gives_the_same_run_again() -> None:
    stories: list[list[str]] = [[], []]
    for story in stories:
        for seed in (3, 4, 5):
            trial("gossip").problem(trial("gossip").schedule(seed), story.append)
    assert stories[0] == stories[1]
    assert stories[0]


def test_a_failure_says_what_went_wrong() -> None:
    broken = Trial(trial("gossip").runs, **BUGS["send before store"][0])
    failure = first_failure(broken, range(200))
    assert failure is not None
    text = str(failure)
    assert f"seed {failure.seed} fails at event" in text
    assert all(str(fault) in text for fault in failure.schedule.faults)
    assert any("killed before" in line for line in failure.story)
    with pytest.raises(ValueError, match="does not fail"):
        Failure.of(trial("gossip"), failure.seed)


def test_shortening_leaves_out_what_does_not_matter() -> None:
    """A made-up failure: it fails if it loses frame 7 and crashes at event 20."""
    seven, twenty = Fate(7), Crash(20)

    def fails(schedule: FaultSchedule) -> bool:
        return {seven, twenty} <= set(schedule.faults)

    long = FaultSchedule(
        (Fate(1, (2.0,)), seven, *(Fate(n) for n in range(8, 60)), Crash(5), twenty, Crash(40)), busy=0.5
    )
    assert fails(long)
    assert shortened(long, fails) == FaultSchedule((seven, twenty), busy=0.0, every=256)


def test_shortening_moves_a_crash_that_others_only_put_off() -> None:
    """Made up: each frame lost puts the event at which a crash matters off by one, from event 10 on."""

    def fails(schedule: FaultSchedule) -> bool:
        lost = sum(isinstance(fault, Fate) for fault in schedule.faults)
        return any(crash.event == 10 + lost for crash in schedule.of(Crash))

    long = FaultSchedule((*(Fate(n) for n in range(12)), Crash(22, instant=4), Crash(40)))
    assert fails(long)
    assert shortened(long, fails).faults == (Crash(10, instant=4),)
