"""A whole federation on one machine, for trying out: a broker, and a process for each party.

The data set of the spec is dealt out as in a simulation, and each process is given its own shard alone, as a file. All
else is as between organisations: invitations, identities, policies, sealed channels, stores and ledgers, each in the
party's own folder.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from gossamer.algorithms.persons import spread
from gossamer.algorithms.plan import Plan
from gossamer.arrays import FloatArray, IndexArray
from gossamer.cli.logs import LOG, live
from gossamer.cli.printing import answered, epsilon, judgement, private_evaluation, say, table, warn, wrapped
from gossamer.data.examples import Owners, Split
from gossamer.deployment.founding.federation_spec import check_deployed, left_out, own_code
from gossamer.deployment.founding.founding import found
from gossamer.deployment.founding.layout import START, TRACE
from gossamer.deployment.party.agreement import Agreed
from gossamer.deployment.party.data import shard_settings, write_party_file
from gossamer.deployment.party.data_side import planned_divergence
from gossamer.deployment.party.reporting import tested
from gossamer.deployment.party.state_folder import StateFolder
from gossamer.errors import CallerError, GossamerError, SpecError, beginning
from gossamer.experiment.preparation.held_out_rows import SUFFIX, rows_of
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import Prepared, prepare
from gossamer.experiment.results.summary import all_finite, card_of, initial_loss, scores_of, troubles, worse
from gossamer.experiment.specs.spec import Experiment
from gossamer.experiment.specs.spec_file import write_spec
from gossamer.files import for_owner, to_json, write_own
from gossamer.interrupts import orderly
from gossamer.keys.invitations import AGENT, Invitation, read_signed
from gossamer.objectives.released_scores import ReleasedScores, doubts_of
from gossamer.objectives.score_words import said_first, warnings_of
from gossamer.privacy.accounting.renyi import renyi_epsilon
from gossamer.privacy.mechanisms import NeighboringRelation, without_late
from gossamer.protocol.node import Node
from gossamer.report.serving import Door
from gossamer.runtimes.mqtt.broker import EmbeddedBroker, Mosquitto
from gossamer.runtimes.storage.store import SqliteStore
from gossamer.trained.card import ARRAYS, saved
from gossamer.trained.card import FILE as CARD

# Policies of a federation on one machine: what owners would write who want just this run.

ORDERS = range(2, 129)


def policy_for(prepared: Prepared, plan: Plan, invitation: Invitation, name: str) -> str:
    """Policy of the owner of a party's data: for the run as a simulation has it, and its invitation."""
    spec = prepared.experiment
    # Examples of whole clients are accounted for by one relation alone.
    relation = NeighboringRelation.REPLACE_ONE if spec.terms.unit == "client" else spec.privacy.relation
    rule = {"path": DATA, "delta": spec.delta, "relation": str(relation), **_budget(prepared, plan, name, relation)}
    rule |= {"accept_weak": True} if spec.privacy.accept_weak else {}
    rules: dict[str, Any] = {
        "data": {name: rule},
        "organisers": [invitation.organiser.fingerprint],
        "algorithms": [spec.algorithm.name],
        "smallest_noise_multiplier": 0.0,
    }
    if code := own_code(spec):
        rules |= {"modules": code}
    scope, members = plan.side(name).trusted.scope, {member.name: member for member in invitation.members}
    if scope and members[name].role == AGENT:
        rules |= {"trust_own_server": True, "smallest_sum": 1}
    elif scope:
        rules |= {"trusted_servers": [members[other].key.fingerprint for other in sorted(scope - {name})]}
    if (others_noise := plan.side(name).trusted.counts_on(name)) is not None:
        others = sorted({other for group in others_noise.groups for other in group} - {name})
        rules |= {"trusted_clients": [members[other].key.fingerprint for other in others]}
        rules |= {"dishonest_clients": others_noise.dishonest}
    if not (spec.private and math.isfinite(plan.epsilons[name])):
        rules |= {"without_privacy": True}
    return "# The owner of this party's data allows one run, and no more.\n" + yaml.safe_dump(rules, sort_keys=False)


def _budget(prepared: Prepared, plan: Plan, name: str, relation: NeighboringRelation) -> dict[str, float]:
    """An order, and the epsilon that the run's plan takes of a budget that is kept at that order."""
    left = without_late(prepared.experiment.delta) / 2  # the share of delta that a Renyi filter has
    spent = {order: planned_divergence(plan, name, order, relation) for order in ORDERS}
    found = [(renyi_epsilon(order, loss, left), float(order)) for order, loss in spent.items() if math.isfinite(loss)]
    if not found:
        return {"epsilon": 1.0}  # nothing is proved, so no budget is enough, and none is asked
    epsilon, order = min(found)
    return {"epsilon": float(f"{epsilon * 1.001 + 1e-9:.4g}"), "order": order}


POLICY, DATA, STATE, OUTPUT = "policy.yaml", "data.npz", "state", "output.log"
_LOOK = 0.2


def _part(split: Split, persons: Owners | None, rows: IndexArray) -> tuple[Split, Owners | None]:
    return Split(split.features[rows], split.targets[rows]), None if persons is None else persons[rows]


@dataclass(frozen=True)
class LocalOutcome:
    """Outcome of a federation on one machine.

    Attributes
    ----------
    summaries : mapping of str to dict
        Summaries of each party, as in its ``summary.json``; only of those that came to an end.
    failed : mapping of str to str
        Parties whose process did not end well, and why.
    metrics : mapping of str to float
        Metrics of the run's model on the test examples, as in a simulation.
    model : ndarray, optional
        Model of the run, where all parties came to an end.
    evaluation : mapping
        Figures of what parties have released of their held-out examples; empty where there is none.
    """

    summaries: Mapping[str, dict[str, Any]]
    failed: Mapping[str, str]
    metrics: Mapping[str, float]
    model: FloatArray | None = None
    evaluation: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class LocalFederation:
    """A federation in one folder.

    Attributes
    ----------
    folder : Path
        Place of a folder for each party.
    prepared : Prepared
        The same as a simulation of the same spec has it.
    plan : Plan
        The same as a simulation has it.
    members : tuple of str
        All parties.
    organiser : str
        Fingerprint.
    """

    folder: Path
    prepared: Prepared
    plan: Plan
    members: tuple[str, ...]
    organiser: str
    processes: dict[str, ForkServerProcess] = field(default_factory=dict)

    @classmethod
    def found(cls, experiment: Experiment, folder: Path, broker: str) -> LocalFederation:
        """Deal out the data, and write all that parties need.

        Raises
        ------
        CallerError
            If the spec cannot be run, or the folder has something in it.
        """
        check_deployed(experiment)
        prepared = prepare(experiment)
        if spread(prepared.experiment, prepared.holdings):
            raise SpecError(
                "dataset.person: persons have examples at several parties, who cannot see that of each other, so no "
                "joint guarantee is made; take partition: by_person, or leave budget.rows_per_person out"
            )
        dataset = shard_settings(prepared.dataset).model_copy(update={"prevalence": experiment.dataset.prevalence})
        if prepared.experiment.evaluation.group is not None and dataset.columns is None:
            raise SpecError(
                "evaluation.group: parties on one machine get rows of unit norm without names of columns; leave it, or "
                "dataset.normalise, out"
            )
        plan = plan_run(prepared)
        for name in prepared.names:
            plan.counts(name)  # or the parties would refuse the invitation
        held_out = {} if plan.held_out is None else rows_of(prepared)
        sizes = prepared.shard_sizes
        text = write_spec(prepared.experiment.model_copy(update={"dataset": dataset}))
        founded = found(folder, spec=text, parties=sizes, broker=broker)
        members = tuple(member.name for member in founded.invitation.members)
        federation = cls(folder, prepared, plan, members, founded.organiser.fingerprint)
        for name, shard in zip(prepared.names, prepared.shards, strict=True):
            data, tested = prepared.dataset, held_out.get(f"{name}{SUFFIX}")
            own, persons = _part(data.train, data.persons, shard)
            test, about = (None, None) if tested is None else _part(data.test, data.test_persons, tested.rows)
            write_party_file(folder / name / DATA, own, data, test, persons, about)
            write_own(folder / name / POLICY, policy_for(prepared, plan, founded.invitation, name))
        return federation

    def command(self, name: str, *more: str) -> list[str]:
        """The arguments with which ``gossamer`` starts a party."""
        place = self.folder / name
        start = [] if self.start_file is None else ["--pretrained", str(self.start_file)]
        modules = [f"--module={module}" for module in own_code(self.prepared.experiment)]
        data = ["--data", str(place / DATA), "--policy", str(place / POLICY)] if name in self.prepared.names else []
        invited = ["--invitation", str(place / "invitation.yaml"), "--organiser", self.organiser]
        return ["node", *invited, "--quiet", *start, *modules, *data, *more]

    @property
    def start_file(self) -> Path | None:
        """The model that all start from, if there is one: one copy for all."""
        return None if self.prepared.pretrained is None else self.folder / START

    def start(self, name: str, *more: str) -> None:
        """Start a party's process."""
        (output := self.folder / name / OUTPUT).touch(0o600)  # it may be stopped before it writes
        process = _CONTEXT.Process(target=_run_node, args=(self.command(name, *more), str(output)), name=name)
        process.start()
        self.processes[name] = process

    def run(self, say: Callable[[str], None], *, more: Mapping[str, Sequence[str]] | None = None) -> LocalOutcome:
        """Start all processes, and wait for their end.

        Parameters
        ----------
        say : callable
            Takes a line when something changes.
        more : mapping of str to sequence of str, optional
            More arguments of parties.
        """
        with orderly():  # or the processes would outlive this one
            try:
                for name in self.members:
                    self.start(name, *(more or {}).get(name, ()))
                self._wait(say)
            finally:
                self.stop()
        return self.outcome()

    def _wait(self, say: Callable[[str], None]) -> None:
        told: dict[str, str] = {}
        while any(process.is_alive() for process in self.processes.values()):
            for name in self.members:
                state = self.state(name)
                if told.get(name) != state:
                    say(f"{name}: {state}")
                    told[name] = state
            if any(process.exitcode == CallerError.exit_code for process in self.processes.values()):
                return  # what a party refuses to do no other can make up for
            time.sleep(_LOOK)

    def state(self, name: str) -> str:
        """Return what a party's node says of itself, in a few words."""
        process = self.processes.get(name)
        try:
            said = StateFolder(self.folder / name / STATE).status()
        except CallerError:
            return "starting" if process is None or process.is_alive() else "failed"  # `outcome` says why
        return f"{said['state']} ({said['finished']})" if said.get("finished") else str(said["state"])

    def last_line(self, name: str) -> str:
        """Last line that a party's process said."""
        lines = (self.folder / name / OUTPUT).read_text(encoding="utf-8").strip().splitlines()
        return lines[-1].removeprefix("gossamer: error: ") if lines else "it says nothing"

    def stop(self, patience: float = 20.0) -> None:
        """End all processes, by a signal if need be."""
        for process in self.processes.values():
            if process.is_alive():
                process.terminate()
        until = time.monotonic() + patience
        for process in self.processes.values():
            process.join(max(0.0, until - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()

    # What came of it

    def outcome(self) -> LocalOutcome:
        """Outcome as the parties' folders tell it."""
        summaries, failed = {}, {}
        for name in self.members:
            folder = StateFolder(self.folder / name / STATE)
            try:
                status = folder.status()
            except CallerError:
                status = {"state": "failed", "why": self.last_line(name)}
            if status["state"] == "finished" and not status.get("why"):
                summaries[name] = json.loads((folder.path / "summary.json").read_text(encoding="utf-8"))
            else:
                failed[name] = status.get("why") or status["state"]
        found = [one for name in self.members if (one := ReleasedScores.read(self.folder / name / STATE)) is not None]
        evaluation = ReleasedScores.together(found).summary() if found else {}
        if failed:
            return LocalOutcome(summaries, failed, {}, None, evaluation)
        model = self.model()
        return LocalOutcome(summaries, {}, self.metrics(model), model, evaluation)

    def nodes(self) -> dict[str, Node]:
        """The nodes as their stores have them; while no process runs."""
        found = {}
        invitation = read_signed(self.folder / self.members[0] / "invitation.yaml", self.organiser)
        agreed = Agreed.by(invitation, own_code(self.prepared.experiment), self.start_file)
        for name in self.members:
            with closing(SqliteStore(self.folder / name / STATE / "store.sqlite", invitation.run, name)) as store:
                found[name] = agreed.of(name).host(store).node
        return found

    def model(self) -> FloatArray:
        """The run's model; while no process runs."""
        return np.asarray(self.prepared.algorithm.output(self.nodes()).values)

    def metrics(self, model: FloatArray) -> dict[str, float]:
        """Metrics of the run's model on the test examples: those of `gossamer run` for the same spec."""
        return tested(self.prepared, model, self.prepared.dataset.test)


# ``gossamer up``


def up(options: argparse.Namespace, experiment: Experiment, out: Path, door: Door | None) -> int:
    """Run a federation on this machine, and say what came of it; the exit code."""
    broker = EmbeddedBroker() if options.broker == "embedded" else Mosquitto()
    with broker:
        with beginning(str(options.spec), SpecError):
            federation = LocalFederation.found(experiment, out, broker.url)
        _tell(f"{len(federation.members)} parties in {out}, over {broker.url}")
        _tell(f"plan: {federation.plan}")
        warn([*left_out(experiment), *federation.plan.guarantee.remarks])
        # Many processes on one machine are slow to answer each other, and heartbeats are a twentieth of this apart.
        parties = len(federation.members)
        more = ("--gone-after", str(30 + 2 * parties), "--wait", str(60 + parties))
        traced = {name: ("--trace", str(out / name / TRACE)) for name in federation.members if options.trace}
        with live(door, [out / name / STATE for name in federation.members]):
            found = federation.run(_tell, more={n: (*more, *traced.get(n, ())) for n in federation.members})
    document: dict[str, Any] = {"folder": str(out), "metrics": dict(found.metrics), "parties": dict(found.summaries)}
    ended = worse(initial_loss(federation.prepared), found.metrics["test_loss"]) if found.metrics else {}
    warn([*troubles(ended, experiment.private), *doubts_of(found.evaluation)])
    if found.model is not None:
        card = card_of(federation.prepared)
        document["scores"] = scores_of(federation.prepared, found.model)
        warn(warnings_of(document["scores"]))
        write_own(out / CARD, card.to_json(indent=2) + "\n")
        write_own(out / ARRAYS, saved(found.model, card))
    document |= {"private_evaluation": dict(found.evaluation)} if found.evaluation else {}
    document |= ended | {"failed": dict(found.failed)}
    write_own(out / "summary.json", to_json(all_finite(document), indent=2) + "\n")
    report = _report(document)
    write_own(out / "summary.txt", report.lstrip("\n") + "\n")
    answered(options, document, report)
    for name, why in found.failed.items():
        say(f"gossamer: {name} {why}")
        LOG.error("%s failed", name)
    return GossamerError.exit_code if found.failed else 0


def _tell(line: str) -> None:
    """Say a line, and log it: none has a party's last words, which may quote its data."""
    say(line)
    LOG.info("%s", line)


def _report(document: Mapping[str, Any]) -> str:
    rows: list[tuple[str, ...]] = [("party", "role", "finished", "releases", "epsilon planned")]
    rows += [_row(summary) for summary in document["parties"].values()]
    rows += [(name, "-", "failed", "-", "-") for name in document["failed"]]
    metrics = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in document["metrics"].items())
    metrics = metrics or "none, since not every party has finished"
    privacy = [summary["privacy"] for summary in document["parties"].values()]
    said = dict.fromkeys(line for found in privacy for line in found.get("said", ()))
    guarantees = "\n".join(wrapped(text) for text in said)
    scores = document.get("scores", {})
    judged = "".join(f"\n{wrapped(line)}\n" for line in said_first(scores))
    tested = f"\n\n{judgement(scores)}" if scores else ""
    evaluated = private_evaluation(document.get("private_evaluation"))
    return (
        f"{judged}\n{table(rows)}\n\nmodel of the run: {metrics}{tested}\n{evaluated}\n{guarantees}\n\n"
        f"Folder: {document['folder']}\n"
        f"Next: gossamer report {shlex.quote(document['folder'])}"
    )


def _row(summary: Mapping[str, Any]) -> tuple[str, ...]:
    privacy = summary["privacy"]
    return (
        summary["node"],
        summary["role"],
        summary["finished"] or "-",
        str(privacy.get("releases", "-")),
        epsilon(privacy["epsilon"]) if "epsilon" in privacy else "-",
    )


# Processes are forked off one that has all modules loaded: a hundred of them share its memory, and start at once.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["gossamer.cli.federation.forked"])


def _run_node(arguments: list[str], output: str) -> None:
    """Run a node, in the process of a party."""
    os.setsid()  # an interrupt from the keyboard is for the one who started them all
    with open(output, "a", encoding="utf-8", opener=for_owner) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    from gossamer.cli.main import main

    sys.exit(main(arguments))
