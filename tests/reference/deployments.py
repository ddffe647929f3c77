"""Deployed parties as real processes, what they did from their first input on, and what must hold of it.

Every input that a node ever committed is kept: a trigger in the store's own file copies what a snapshot makes
superfluous, in the same transaction. So the whole life of a node, over all its processes, is exactly known, whenever
they were killed, and the processes run the same code as anywhere else.
"""

from __future__ import annotations

import signal
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.algorithms.context import InFlight
from gossamer.cli.federation.local_federation import DATA, POLICY, STATE, LocalFederation
from gossamer.deployment.founding.federation_spec import own_code
from gossamer.deployment.owner.policy import read_policy
from gossamer.deployment.party.agreement import Agreed, PartyOptions, accept
from gossamer.deployment.party.data_side import DataHeld
from gossamer.deployment.party.state_folder import ENDED, StateFolder
from gossamer.errors import CallerError
from gossamer.experiment.specs.spec import Experiment
from gossamer.experiment.specs.spec_file import read_text
from gossamer.faults.hosts import MemoryJournal
from gossamer.keys.identity import Identity
from gossamer.keys.invitations import parse_invitation
from gossamer.privacy.tasks import CuratedSum, step_of
from gossamer.protocol.effects import Compute, Send
from gossamer.protocol.encoding import decode, encode
from gossamer.protocol.events import Answered, Completed, Received
from gossamer.protocol.messages import Message
from gossamer.protocol.session import Link
from gossamer.protocol.trace import TraceStep
from gossamer.runtimes.host import Host, Input
from gossamer.runtimes.storage.ledger import LedgerFile
from gossamer.runtimes.storage.store import SqliteStore
from gossamer.sides.plan import MaskedMember, counts_of
from gossamer.vectors import Masked

LONG = 120.0
"""Seconds that a busy machine may need."""
QUICK = ("--gone-after", "8", "--wait", "20", "--connect-timeout", "30")
"""Options of parties that shall not wait for what will not come."""
_KEEP = (
    "CREATE TABLE kept (number INTEGER PRIMARY KEY, last INTEGER NOT NULL, part BLOB NOT NULL)",
    "CREATE TRIGGER keep BEFORE DELETE ON journal BEGIN INSERT INTO kept (last, part) VALUES (OLD.last, OLD.part); END",
)


def experiment(text: str) -> Experiment:
    """A spec in YAML."""
    return read_text(text)


def until(condition: Callable[[], bool], what: str, patience: float = LONG) -> None:
    """Wait for a condition."""
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, f"waited {patience:g} s for {what}"
        time.sleep(0.02)


class Parties:
    """The processes of a federation on this machine, which come and go.

    Parameters
    ----------
    federation : LocalFederation
        Founded.
    more : sequence of str
        More arguments of all parties.
    """

    def __init__(self, federation: LocalFederation, more: Iterable[str] = QUICK) -> None:
        self.federation, self.more = federation, tuple(more)
        self.names = federation.members

    def folder(self, name: str) -> StateFolder:
        return StateFolder(self.federation.folder / name / STATE)

    def start(self, *names: str, more: Iterable[str] = ()) -> None:
        """Start the processes of some parties, or of all."""
        for name in names or self.names:
            self.federation.start(name, *self.more, *more)

    def kill(self, name: str) -> None:
        """End a process at once, with no chance to say or write anything."""
        process = self.federation.processes[name]
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL, (name, process.exitcode, self.output(name))

    def join(self, *names: str, patience: float = LONG) -> dict[str, int | None]:
        """Wait for the end of processes; their exit codes."""
        end = time.monotonic() + patience
        for name in names or self.names:
            self.federation.processes[name].join(max(0.0, end - time.monotonic()))
            assert self.federation.processes[name].exitcode is not None, f"{name} goes on: {self.log(name)}"
        return {name: self.federation.processes[name].exitcode for name in names or self.names}

    def finish(self, *names: str, patience: float = LONG) -> None:
        """Wait until the parties' part in the run is over, as it should be."""
        codes = self.join(*names, patience=patience)
        assert not any(codes.values()), {name: self.output(name) for name, code in codes.items() if code}
        for name in names or self.names:
            assert self.status(name)["state"] == "finished", self.status(name)

    def status(self, name: str) -> dict[str, Any]:
        """What `gossamer status` says; nothing before the node has said anything."""
        try:
            return self.folder(name).status()
        except CallerError:
            return {"state": "starting", "process": None}

    def updates(self, name: str) -> int:
        """Since the process began."""
        return int(self.status(name).get("updates", 0))

    def peer(self, name: str, of: str) -> str:
        """What a node says of a peer."""
        return str(self.status(of).get("peers", {}).get(name, {}).get("state"))

    def log(self, name: str) -> str:
        file = self.folder(name).path / "node.log"
        return file.read_text() if file.exists() else ""

    def output(self, name: str) -> str:
        """What the party's processes have printed."""
        file = self.federation.folder / name / "output.log"
        return file.read_text() if file.exists() else ""

    def agreed(self, name: str) -> Agreed:
        """What a party's invitation comes to."""
        place = self.federation.folder / name
        identity = Identity.load(place / "identity.key")
        organiser = self.federation.organiser
        content = (place / "invitation.yaml").read_bytes()
        return Agreed.by(parse_invitation(content, identity, [organiser], datetime.now(UTC)))


@contextmanager
def parties(federation: LocalFederation, more: Iterable[str] = QUICK) -> Iterator[Parties]:
    """The processes of a federation; none is left at the end."""
    try:
        yield Parties(federation, more)
    finally:
        federation.stop(patience=10.0)


# What nodes did


@dataclass(frozen=True)
class Life:
    """All that a node ever did, over all its processes.

    Attributes
    ----------
    inputs : list of (float, Input)
        That it committed, in order.
    steps : list of TraceStep
        What they came to.
    host : Host
        As an undisturbed node would be after these inputs.
    stored : bytes
        The state of the node that goes on from the store, encoded.
    own : ndarray
        How its model changed by its own updates, in all.
    """

    inputs: list[tuple[float, Input]]
    steps: list[TraceStep]
    host: Host
    stored: bytes
    own: Any


def keep_history(there: Parties) -> None:
    """Have the stores of all parties keep everything; before any process has begun."""
    for name in there.names:
        place = there.folder(name).path
        place.mkdir(mode=0o700, exist_ok=True)
        file = place / "store.sqlite"
        key = Identity.load(there.federation.folder / name / "identity.key").secret("state")
        store = SqliteStore(file, there.agreed(name).invitation.run, name, key)
        with closing(store), store._file.transaction():
            for statement in _KEEP:
                store._file.execute(statement)


def life(there: Parties, name: str) -> Life:
    """What a node did, while no process runs it."""
    agreed = there.agreed(name)
    file = there.folder(name).path / "store.sqlite"
    connection = sqlite3.connect(file)
    rows = [
        row
        for table in ("kept", "journal")
        for row in connection.execute(f"SELECT last, part FROM {table} ORDER BY number")
    ]
    connection.close()
    store = SqliteStore(file, agreed.invitation.run, name)
    stored = encode(agreed.host(store).state())
    store.close()
    steps: list[TraceStep] = []
    host = Host(
        agreed.nodes()[name],
        agreed.session,
        MemoryJournal(),
        every=1 << 40,
        watch=steps.append,
        may_hear=agreed.may_hear,
    )
    model_of, own = agreed.prepared.algorithm.model_of, 0.0
    inputs = [decode(entry) for entry in _entries(rows)]
    for now, what in inputs:
        before, first = np.array(model_of(host.node).values), len(steps)
        host.take(what, now)
        if any(isinstance(step.event, Completed) for step in steps[first:]):
            own = own + (np.asarray(model_of(host.node).values, dtype="float64") - before)
    return Life(inputs, steps, host, stored, own)


def _entries(rows: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
    parts: list[bytes] = []
    for last, part in rows:
        parts.append(part)
        if last:
            yield b"".join(parts)
            parts = []


# What must hold


def check_lives(there: Parties, kills: Mapping[str, int], left: Collection[str] = ()) -> dict[str, Life]:
    """Nothing is lost, nothing is done twice and no ledger is short, however often processes were killed.

    Parameters
    ----------
    there : Parties
        Whose processes have all ended, with a history.
    kills : mapping of str to int
        How often each party was killed, or stopped.
    left : collection of str
        Parties that were not started again after that.
    """
    lives = {name: life(there, name) for name in there.names}
    for name, found in lives.items():
        assert found.stored == encode(found.host.state()), f"{name}'s store is not what its inputs say"
    check_answers(lives)
    check_delivery(lives, left)
    check_ledgers(there, lives, kills)
    check_invariants(there, lives)
    return lives


def check_answers(lives: Mapping[str, Life]) -> None:
    """Each query is answered once at most, and no two releases have the same noise."""
    seen: set[bytes] = set()
    for name, found in lives.items():
        answers = [step for step in found.steps if isinstance(step.event, Completed)]
        counted = Counter(step.event.id for step in answers if step.effects)
        assert all(count == 1 for count in counted.values()), (name, counted)
        for step in answers:
            content = step.event.released.values.tobytes()
            assert content not in seen, f"{name} has a release that there was before"
            seen.add(content)


def check_delivery(lives: Mapping[str, Life], left: Collection[str] = ()) -> None:
    """All that a node was bound to send has arrived at its peer once, in order."""
    sent: dict[tuple[str, str], list[Message]] = defaultdict(list)
    received: dict[tuple[str, str], list[Message]] = defaultdict(list)
    for name, found in lives.items():
        for step in found.steps:
            if isinstance(step.event, Received):
                received[step.event.sender, name].append(step.event.message)
            for effect in step.effects:
                if isinstance(effect, Send):
                    sent[name, effect.to].append(effect.message)
    for pair in {*sent, *received}:
        come, gone = ([encode(message) for message in held[pair]] for held in (received, sent))
        if not left:
            assert len(come) == len(gone), f"{pair}: {len(gone)} messages were sent, and {len(come)} have arrived"
        assert come == gone[: len(come)], pair


def check_ledgers(there: Parties, lives: Mapping[str, Life], kills: Mapping[str, int]) -> None:
    """Every release that a node was given is charged, and what is charged beyond that was lost with a process."""
    for name, found in lives.items():
        # A sum of clients' updates has a line for each of them, and clients count what they hand over themselves.
        asked = [effect.task for step in found.steps for effect in step.effects if isinstance(effect, Compute)]
        lines = {task.id: len(task.owners) for task in asked if isinstance(task, CuratedSum)}
        side = there.agreed(name).plan.side(name)
        kinds = Completed if counts_of(side) is None else (Completed, Answered)
        given = sum(lines.get(step.event.id, 1) for step in found.steps if isinstance(step.event, kinds))
        masked = masked_rounds(found)
        # Masks without noise of the member's own leave nothing to charge it for: its server's ledger has the sums.
        given += len(masked) if isinstance(side, MaskedMember) and side.noise is not None else 0
        charged, lost = charges(there, name), (1 + kills.get(name, 0)) * max(lines.values(), default=1)
        if charged is not None and there.federation.prepared.experiment.private:
            assert given <= charged <= given + lost, (name, given, charged, kills)


def masked_rounds(found: Life) -> list[int]:
    """The rounds that a node was given a masked vector of, once each: it may be given the same one again."""
    given: dict[int, bytes] = {}
    for step in found.steps:
        if isinstance(step.event, Answered) and isinstance(step.event.vector, Masked):
            round, content = step_of(step.event.id)[0], step.event.vector.values.tobytes()
            assert given.setdefault(round, content) == content, f"two masked vectors of round {round}"
    return sorted(given)


def charges(there: Parties, name: str) -> int | None:
    """How many releases the ledger of a party's data, or of a unit, has; None where nothing is charged."""
    policy, unit = there.federation.folder / name / POLICY, there.folder(name).path / "unit.ledger"
    path, data_sets = (read_policy(policy).ledger_path, [name]) if policy.exists() else (unit, None)
    if not path.exists():
        return None
    file = LedgerFile(path)
    try:
        return sum(run.releases for data_set in data_sets or file.data_sets for run in file.runs(data_set))
    finally:
        file.close()


def check_invariants(there: Parties, lives: Mapping[str, Life]) -> None:
    """What the algorithm calls invariant has changed by the nodes' own updates, and by nothing else."""
    agreed = there.agreed(there.names[0])
    algorithm = agreed.prepared.algorithm
    nodes = {name: found.host.node for name, found in lives.items()}
    before = algorithm.figures.invariants(agreed.nodes(), [])
    after = algorithm.figures.invariants(nodes, in_flight(lives))
    own = sum((found.own for found in lives.values()), start=np.zeros(()))
    steps = sum(len(found.steps) for found in lives.values())
    for what, value in after.items():
        largest = max(float(np.abs(algorithm.model_of(node).values).max()) for node in nodes.values())
        # Each step rounds a few sums, by an error of mean 0 and at most half a unit in the last place.
        rounding = 10 * np.spacing(agreed.prepared.objective.dtype.type(largest)) * np.sqrt(steps)
        off = float(np.abs(value - before[what] - own).max())
        assert off <= rounding, (what, off, rounding)


def in_flight(lives: Mapping[str, Life]) -> list[InFlight]:
    """Messages that a node is bound to send, and that its peer's node has not been given."""
    found = []
    for sender, one in lives.items():
        for to, link in one.host.session.links.items():
            back = lives[to].host.session.links.get(sender, Link(1.0))
            waiting = {**back.early, **link.outbox}
            found += [InFlight(sender, to, waiting[n]) for n in sorted(waiting) if n > back.delivered]
    return found


def ended(there: Parties) -> bool:
    """Whether no process runs."""
    return all(there.status(name)["state"] in ENDED for name in there.names)


def spec_of(path: Path) -> Experiment:
    """A spec in a file."""
    return read_text(path.read_text(encoding="utf-8"))


def charge(federation: LocalFederation, name: str) -> None:
    """Enter a party's plan in the ledger of its data and open its data side, as once it has met its peers."""
    place = federation.folder / name
    options = PartyOptions(
        invitation=place / "invitation.yaml",
        organiser=federation.organiser,
        data=place / DATA,
        policy=place / POLICY,
        modules=own_code(federation.prepared.experiment),
        quiet=True,
    )
    folder = StateFolder(place / STATE)
    folder.take()
    try:
        with closing(DataHeld(options, accept(options), folder)) as held:
            held.charge()
            held.open()
    finally:
        folder.give_back()
