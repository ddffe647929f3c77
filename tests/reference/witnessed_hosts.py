"""Hosts of faults whose frames carry notes about receipts, as sealed ones do; ledgers and memories outlive crashes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gossamer.faults.checks import Laboratory
from gossamer.faults.hosts import LinkedHosts
from gossamer.faults.trials import Ledgers, Trial
from gossamer.keys.identity import Identity
from gossamer.protocol.encoding import decode, encode
from gossamer.protocol.messages import ChunkFrame, MessageFrame
from gossamer.protocol.witnesses import PURPOSE, Known, Note, Seen, Verdict, Witnesses
from gossamer.runtimes.host import Arrived, Input
from gossamer.runtimes.storage.receipts import StoredReceipts
from gossamer.sides.home import Home
from gossamer.sides.ledger import Ledger, MemoryLedger, Receipt
from gossamer.sides.plan import SidePlan

RUN = "5e" * 16


def identity(name: str) -> Identity:
    return Identity.of_seed(name.encode().ljust(32, b"."))


def signed(peer: str, signature: bytes, content: bytes) -> bool:
    return identity(peer).public_key.signed(signature, PURPOSE, content)


class Memory:
    """A disk: what was kept is there, whoever asks."""

    def __init__(self) -> None:
        self.disk: dict[str, tuple[Seen | None, ...]] = {}

    def kept(self) -> Mapping[str, Known]:
        return {name: Known(*one) for name, one in self.disk.items()}

    def keep(self, known: Mapping[str, Known]) -> None:
        self.disk |= {name: (one.seen, one.told, one.evidence) for name, one in known.items()}


def witnesses(name: str, own: Any, memory: Memory) -> Witnesses:
    return Witnesses(RUN, name, memory, lambda content: identity(name).sign(PURPOSE, content), signed, own)


class Noting(Laboratory):
    """A laboratory whose ledgers have receipts."""

    def __init__(self, ledgers: Ledgers, receipts: dict[str, StoredReceipts]) -> None:
        super().__init__(ledgers.open, ledgers.reaper)
        self._disk, self.receipts = ledgers, receipts

    def ledger(self, name: str, plan: SidePlan) -> Ledger:
        found = super().ledger(name, plan)
        if not isinstance(found, MemoryLedger):
            self.receipts[name] = self._disk._file.receipts(self._disk._name, name)  # as a process finds them
            self.receipts[name].begin({name: plan}, identity(name).public_key.raw.hex())
        return found

    def charged(self, name: str, task: Any, receipt: Receipt, charge: Callable[[Receipt], int]) -> int:
        if name not in self.receipts:
            return charge(receipt)
        with self.receipts[name].together():
            number = charge(receipt)
            self.receipts[name].add(name, task, receipt)
            self.crashpoint("committing a receipt")
        return number


class WitnessedHosts(LinkedHosts):
    """What a party seals is a frame with a note, and what it opens it believes, or does not."""

    receipts: dict[str, StoredReceipts]
    """Of all parties, as their processes have them."""
    made: Callable[[WitnessedHosts], None] = lambda hosts: None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.memories = {name: Memory() for name in self.hosts}
        self.notes: dict[int, tuple[Arrived, bytes]] = {}
        self.verdicts: list[Verdict] = []
        self.bytes_of_notes = self.bytes_of_frames = 0
        self.witnesses: dict[str, Witnesses] = {}
        for name in self.hosts:
            self._born(name)
        type(self).made(self)

    def _born(self, name: str) -> None:
        self.witnesses[name] = witnesses(name, self.receipts.get(name), self.memories[name])

    def _restart(self, name: str, _: None, now: float) -> None:
        if hasattr(self.computer, "restart"):
            self.computer.restart(name)
        self._born(name)
        assert self.witnesses[name].forgotten() == [], "whoever comes back has all that was seen of it"
        super()._restart(name, _, now)

    def _transmit(self, name: str, to: str, arrived: Arrived) -> None:
        if name in self.receipts:  # its process may have opened the ledger since
            self.witnesses[name].own = self.receipts[name]
        note = self.witnesses[name].note(to, claims=isinstance(arrived.frame, MessageFrame | ChunkFrame))
        self.bytes_of_frames += len(encode(arrived.frame))
        if note is not None:
            content = encode(note)
            self.bytes_of_notes += len(content)
            arrived = Arrived(arrived.sender, arrived.frame)
            self.notes[id(arrived)] = arrived, content
        super()._transmit(name, to, arrived)

    def _turn(self, name: str) -> None:
        self._inboxes[name] = [one for one in self._inboxes[name] if self._believed(name, one[0])]
        if self.witnesses[name].urgent:
            self.reaper("keeping what was seen")
            self.witnesses[name].keep()
        if self._inboxes[name]:
            super()._turn(name)

    def _believed(self, name: str, what: Input) -> bool:
        if not isinstance(what, Arrived) or id(what) not in self.notes:
            return True
        note = decode(self.notes[id(what)][1])
        assert isinstance(note, Note)
        verdict = self.witnesses[name].take(what.sender, note)
        if verdict is None:
            return True
        self.verdicts.append(verdict)
        assert not verdict.offence, f"an honest party is accused: {verdict.line}"
        assert verdict.drops, f"an honest party is said to have forgotten: {verdict.line}"
        return False


def witnessed_trial(trial: Trial, seen: list[WitnessedHosts]) -> tuple[Trial, type[WitnessedHosts]]:
    """A trial, and hosts to put in the place of its own; every run of it adds its hosts to ``seen``."""
    receipts: dict[str, StoredReceipts] = {}

    def home(ledgers: Ledgers) -> Home:
        receipts.clear()
        return Noting(ledgers, receipts)

    kind = type("Kind", (WitnessedHosts,), {"receipts": receipts, "made": staticmethod(seen.append)})
    return Trial(trial.runs, home=home), kind
