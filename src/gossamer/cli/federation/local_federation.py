"""A whole federation on one machine, for trying out: a broker, and a process for each party.

The data set of the spec is dealt out as in a simulation, and each process is given its own shard alone, as a file. All
else is as between organisations: invitations, identities, policies, sealed channels, stores and ledgers, each in the
party's own folder.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from gossamer.algorithms.plan import Plan
from gossamer.algorithms.sample_noise import spread
from gossamer.arrays import FloatArray
from gossamer.data.examples import Split
from gossamer.deployment.founding.federation_spec import check_scale, own_code
from gossamer.deployment.founding.founding import found
from gossamer.deployment.founding.invitations import Invitation, read_signed
from gossamer.deployment.founding.layout import START
from gossamer.deployment.party.agreement import Agreed, RunTerms
from gossamer.deployment.party.data import shard_settings, write_party_file
from gossamer.deployment.party.data_side import planned_divergence
from gossamer.deployment.party.state_folder import StateFolder
from gossamer.errors import CallerError, SpecError
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import Prepared, prepare
from gossamer.experiment.results.observing import fit_figures
from gossamer.experiment.specs.reading import write_spec
from gossamer.experiment.specs.spec import Experiment
from gossamer.files import for_owner, write_own
from gossamer.interrupts import orderly
from gossamer.keys.membership import AGENT
from gossamer.privacy.accounting.renyi import renyi_epsilon
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.sampling import without_late
from gossamer.protocol.node import Node
from gossamer.runtimes.storage.store import SqliteStore

# Policies of a federation on one machine: what owners would write who want just this run.

ORDERS = range(2, 129)


class PartyRequest(NamedTuple):
    """Request to one party: a run as a simulation has it, and its invitation."""

    prepared: Prepared
    plan: Plan
    invitation: Invitation
    name: str


def policy_for(asked: PartyRequest, data: str) -> str:
    """Policy of the owner of a party's data, which lie in the file ``data``."""
    spec, plan, name = asked.prepared.experiment, asked.plan, asked.name
    rule = {"path": data, "delta": spec.delta, "relation": str(_relation(asked)), **_budget(asked)}
    rule |= {"accept_weak": True} if spec.privacy.accept_weak else {}
    rules: dict[str, Any] = {
        "data": {name: rule},
        "organisers": [asked.invitation.organiser.fingerprint],
        "algorithms": [spec.algorithm.name],
        "smallest_noise_multiplier": 0.0,
    }
    if code := own_code(spec):
        rules |= {"modules": code}
    scope, members = plan.side(name).trusted.scope, {member.name: member for member in asked.invitation.members}
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


def _relation(asked: PartyRequest) -> NeighboringRelation:
    """Relation by which examples are accounted for: those of whole clients take one alone."""
    spec = asked.prepared.experiment
    return NeighboringRelation.REPLACE_ONE if spec.terms.unit == "client" else spec.privacy.relation


def _budget(asked: PartyRequest) -> dict[str, float]:
    """An order, and the epsilon that the run's plan takes of a budget that is kept at that order."""
    delta, relation = asked.prepared.experiment.delta, _relation(asked)
    found = [
        # The share of delta that a Renyi filter has.
        (renyi_epsilon(order, spent, without_late(delta) / 2), float(order))
        for order in ORDERS
        if math.isfinite(spent := planned_divergence(asked.prepared, asked.plan, asked.name, order, relation))
    ]
    if not found:
        return {"epsilon": 1.0}  # nothing is proved, so no budget is enough, and none is asked
    epsilon, order = min(found)
    return {"epsilon": float(f"{epsilon * 1.001 + 1e-9:.4g}"), "order": order}


POLICY, DATA, STATE, OUTPUT = "policy.yaml", "data.npz", "state", "output.log"
_LOOK = 0.2


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
    """

    summaries: Mapping[str, dict[str, Any]]
    failed: Mapping[str, str]
    metrics: Mapping[str, float]
    model: FloatArray | None = None


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
        check_scale(experiment)
        prepared = prepare(experiment)
        if spread(prepared.experiment, prepared.holdings):
            raise SpecError(
                "dataset.person: persons have examples at several parties, who cannot see that of each other, so no "
                "joint guarantee is made; take partition: by_person, or leave budget.rows_per_person out"
            )
        plan = plan_run(prepared)
        dataset = shard_settings(prepared.dataset)
        sizes = prepared.shard_sizes
        text = write_spec(prepared.experiment.model_copy(update={"dataset": dataset}))
        founded = found(folder, spec=text, parties=sizes, broker=broker)
        members = tuple(member.name for member in founded.invitation.members)
        federation = cls(folder, prepared, plan, members, founded.organiser.fingerprint)
        for name, shard in zip(prepared.names, prepared.shards, strict=True):
            own = Split(prepared.dataset.train.features[shard], prepared.dataset.train.targets[shard])
            persons = None if prepared.dataset.persons is None else prepared.dataset.persons[shard]
            write_party_file(folder / name / DATA, own, prepared.dataset, persons=persons)
            asked = PartyRequest(prepared, plan, founded.invitation, name)
            write_own(folder / name / POLICY, policy_for(asked, DATA))
        return federation

    def command(self, name: str, *more: str) -> list[str]:
        """The arguments with which ``gossamer`` starts a party."""
        place = self.folder / name
        start = [] if self.start_file is None else [f"--pretrained={self.start_file}"]
        modules = [f"--module={module}" for module in own_code(self.prepared.experiment)]
        data = ["--data", str(place / DATA), "--policy", str(place / POLICY)] if name in self.prepared.names else []
        invitation = str(place / "invitation.yaml")
        return [
            "node",
            "--invitation",
            invitation,
            "--quiet",
            "--organiser",
            self.organiser,
            *start,
            *modules,
            *data,
            *more,
        ]

    @property
    def start_file(self) -> Path | None:
        """The model that all start from, if there is one: one copy for all."""
        return None if self.prepared.pretrained is None else self.folder / START

    def start(self, name: str, *more: str) -> None:
        """Start a party's process."""
        output = str(self.folder / name / OUTPUT)
        process = _CONTEXT.Process(target=_run_node, args=(self.command(name, *more), output), name=name)
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
        if failed:
            return LocalOutcome(summaries, failed, {})
        model = self.model()
        return LocalOutcome(summaries, failed, self.metrics(model), model)

    def nodes(self) -> dict[str, Node]:
        """The nodes as their stores have them; while no process runs."""
        found = {}
        invitation = read_signed(self.folder / self.members[0] / "invitation.yaml", self.organiser)
        agreed = Agreed.on(RunTerms.of(invitation, own_code(self.prepared.experiment), self.start_file))
        for name in self.members:
            store = SqliteStore(self.folder / name / STATE / "store.sqlite", invitation.run, name)
            try:
                found[name] = agreed.of(name).host(store).node
            finally:
                store.close()
        return found

    def model(self) -> FloatArray:
        """The run's model; while no process runs."""
        return np.asarray(self.prepared.algorithm.output(self.nodes()).values)

    def metrics(self, model: FloatArray) -> dict[str, float]:
        """Metrics of the run's model on the test examples: those of `gossamer run` for the same spec."""
        found = self.prepared.objective.evaluate(model[None], self.prepared.dataset.test)
        metrics = {"test_loss": float(found.loss[0])}
        if self.prepared.dataset.classes is not None:
            metrics["test_accuracy"] = float(found.accuracy[0])
        further = fit_figures(self.prepared.objective, model, self.prepared.dataset)
        return metrics | {name: value for name, value in further.items() if value is not None}


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
