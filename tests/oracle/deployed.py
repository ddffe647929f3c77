"""Deployments whose randomness is known: parties as they are founded, with their files, in virtual time.

Real processes answer each other in an order of their own, so their bytes differ from run to run. Here the hosts, the
data sides, the ledgers, the policies and the papers of a deployment are the real ones; links and clocks are virtual,
and what the operating system would give at random follows from the party's name.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.end_to_end import test_deployed_sides as sides
from tests.oracle.called import Hashes, plain, sha256, sha256_of_file
from tests.oracle.handles import KnownRandomness, known_randomness
from tests.oracle.specs import SPECS
from tests.reference.run_of_hosts import run as run_of_hosts

from gossamer.cli.federation.local_federation import DATA, POLICY, STATE, LocalFederation
from gossamer.deployment.party.agreement import Invited, PartyOptions, accept
from gossamer.deployment.party.data_side import DataHeld
from gossamer.deployment.party.reporting import write_results
from gossamer.deployment.party.state_folder import StateFolder
from gossamer.errors import RunWarning
from gossamer.experiment.preparation.ending import Observer, drive
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.faults.hosts import LinkedHosts
from gossamer.keys.identity import Identity
from gossamer.protocol.encoding import encode
from gossamer.protocol.trace import TraceStep
from gossamer.runtimes.simulator import Simulator
from gossamer.runtimes.speeds import Speeds

FOUNDED = (
    "gossip",
    "gossip-l2-laplace-level",
    "allreduce-quantile",
    "audp",
    "increasing",
    "increasing-clipped-sum",
    "mapa",
    "graph-walk",
    "graph-laplace",
    "graph-secure",
    "graph-secure-agent-noise",
)
"""Small specs that are founded, with papers, policies and ledgers."""
SIDES = tuple(name for name in sides.SPECS if name != "none")
"""Specs whose data sides are those of a deployment, among nodes in the simulator."""
DEPLOYED = (*FOUNDED, *(f"side of {name}" for name in SIDES))

_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")


def run(name: str) -> Hashes:
    """What a deployment gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        return _side(name.removeprefix("side of ")) if name.startswith("side of ") else _founded(name)


# Parties


@dataclass
class Parties:
    """The data sides of all parties, each with its own randomness: a `Computer`."""

    known: KnownRandomness
    sides: Mapping[str, Any]

    def admit(self, node: str, task: Any) -> Any:
        with self.known.of(node):
            return node, self.sides[node].admit(node, task)

    def amended(self, ticket: Any, task: Any) -> Any:
        with self.known.of(ticket[0]):
            return ticket[0], self.sides[ticket[0]].amended(ticket[1], task)

    def compute(self, tickets: Sequence[Any]) -> list[Any]:
        found = []
        for node, ticket in tickets:
            with self.known.of(node):
                found += self.sides[node].compute([ticket])
        return found

    def releases(self, node: str) -> int:
        return int(self.sides[node].releases(node))


@dataclass
class Federation:
    """A federation in a folder, and what its parties have of it."""

    known: KnownRandomness
    local: LocalFederation
    invited: dict[str, Invited] = field(default_factory=dict)
    folders: dict[str, StateFolder] = field(default_factory=dict)
    held: dict[str, DataHeld] = field(default_factory=dict)

    def hosts(self, watch: Callable[[TraceStep], None] | None = None) -> LinkedHosts:
        """The parties' nodes, with links between them on which nothing is lost."""
        agreed, experiment = next(iter(self.invited.values())).agreed, self.local.prepared.experiment
        nodes = {name: invited.agreed.nodes()[name] for name, invited in self.invited.items()}
        return LinkedHosts(
            nodes,
            Parties(self.known, {name: held.computer for name, held in self.held.items()}),
            speeds=Speeds(experiment.speeds, len(nodes), 1),
            settings=agreed.session,
            units=self.local.prepared.units,
            watch=watch,
        )


@contextmanager
def federation(spec: Mapping[str, Any], folder: Path) -> Iterator[Federation]:
    """The parties of a spec, founded in ``folder``, with their data held."""
    made = iter(range(1 << 16))

    def generate(cls: type[Identity] = Identity) -> Identity:
        return Identity.of_seed(hashlib.sha256(f"identity {next(made)}".encode()).digest())

    with ExitStack() as stack:
        known = stack.enter_context(known_randomness())
        stack.enter_context(patch.object(Identity, "generate", generate))
        local = LocalFederation.found(parse_spec(dict(spec)), folder, "mqtt://127.0.0.1:18830")
        found = Federation(known, local)
        for name in local.members:
            place, owns = folder / name, name in local.prepared.names
            options = PartyOptions(
                invitation=place / "invitation.yaml",
                organiser=local.organiser,
                data=place / DATA if owns else None,
                policy=place / POLICY if owns else None,
                modules=(),
                quiet=True,
            )
            with known.of(name):
                state = found.folders[name] = StateFolder(place / STATE)
                invited = found.invited[name] = accept(options)
                state.take()
                stack.callback(state.give_back)
                held = found.held[name] = DataHeld(options, invited, state)
                stack.callback(held.close)
                held.charge()
                held.open()
        yield found


def _founded(name: str) -> Hashes:
    digests: dict[str, Any] = {}

    def watch(step: TraceStep) -> None:
        data = encode(step)
        digests.setdefault(step.node, hashlib.sha256()).update(len(data).to_bytes(8, "little") + data)

    with tempfile.TemporaryDirectory(prefix="oracle-") as place:
        folder = Path(place).resolve() / "federation"
        with federation(SPECS[name], folder) as found:
            hosts = found.hosts(watch)
            run_of_hosts(hosts)
            hashes = {f"{party}: steps": digest.hexdigest() for party, digest in sorted(digests.items())}
            for party, held in found.held.items():
                journal = hosts.journals[party]
                hashes[f"{party}: journal"] = sha256(b"".join([journal.base or b"", *journal.entries]))
                write_results(found.folders[party], held.agreed, hosts[party], held, "")
                hashes |= _results(party, found.folders[party].path, folder)
        return hashes | _kept(folder)


def _results(party: str, state: Path, folder: Path) -> Hashes:
    return {
        f"{party}: summary.json": sha256(plain((state / "summary.json").read_bytes(), folder)),
        f"{party}: model.safetensors": sha256_of_file(state / "model.safetensors"),
    }


def _kept(folder: Path) -> Hashes:
    """What lies in the ledgers and in the files of data sides, row by row; and what owners ruled."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".sqlite", ".ledger") and path.is_file())
    found = {f"{path.relative_to(folder)}": sha256(rows_of(path).encode()) for path in files}
    policies = sorted(folder.rglob(POLICY))
    return found | {f"{path.relative_to(folder)}": sha256(path.read_bytes()) for path in policies}


def rows_of(path: Path) -> str:
    """All that is in an SQLite file, as text, but for when data were accepted."""
    connection = sqlite3.connect(path)
    try:
        return _MOMENT.sub("<moment>", "\n".join(connection.iterdump()))
    finally:
        connection.close()


# Data sides among nodes in the simulator


def _side(name: str) -> Hashes:
    prepared = sides.prepared_of(name)
    plan = plan_run(prepared)
    context = prepared.context(plan.mechanisms, plan.quotas)
    nodes = prepared.algorithm.build(prepared.experiment.algorithm, context)
    digest = hashlib.sha256()

    def watch(step: TraceStep) -> None:
        data = encode(step)
        digest.update(len(data).to_bytes(8, "little") + data)

    with known_randomness() as known:
        parties = sides.Parties(prepared, plan, list(nodes))
        computer = Parties(known, parties.sides)
        simulator = Simulator(nodes, computer, prepared.world, watch=watch, count=prepared.count)
        drive(simulator, plan.stop, Observer())
    lines = [line for ledger in parties.ledgers.values() if ledger is not None for line in ledger.lines()]
    return {"steps": digest.hexdigest(), "ledgers": sha256(repr(lines).encode())}
