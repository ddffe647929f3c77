"""Meeting of a node's neighbours, and what they have witnessed, before it draws or charges anything.

A new node says hello, and probes whether a message of the run's size gets through, so that it begins together with the
others, and not before it has reached one. Any node hears what its peers know of the messages
between them: a store that has forgotten some of these is an older copy, or another one, and with it the node would
release anew what it has released, and be refused by its peers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from gossamer.deployment.party.data_side import DataHeld
from gossamer.deployment.party.joining import Invited
from gossamer.deployment.party.reach import PeerReach
from gossamer.deployment.party.state_folder import StateFolder
from gossamer.deployment.peers.peers import Peers
from gossamer.errors import CallerError
from gossamer.protocol.link import Link, forgotten
from gossamer.protocol.witnesses import PURPOSE, Witnesses
from gossamer.runtimes.mqtt.transport import MqttTransport
from gossamer.runtimes.storage.store import WitnessFile

# A party as a witness of its peers' receipts, and what they have seen that its own ledger has forgotten.

MEMORY = "witness.sqlite"
"""File in the state folder of what was seen of peers' receipts, and they of these."""


class OlderLedger(CallerError):
    """The ledger has forgotten what peers have countersigned."""


def witnesses_of(invited: Invited, folder: StateFolder, held: DataHeld, stack: ExitStack) -> Witnesses | None:
    """The witnesses of a run; None where numbers of releases are to be kept secret, and nobody is told of any.

    Parameters
    ----------
    invited : Invited
        The party.
    folder : StateFolder
        Taken.
    held : DataHeld
        Data side with its receipts.
    stack : ExitStack
        Closes what is opened.
    """
    if invited.agreed.plan.hides_schedule:
        return None
    invitation = invited.agreed.terms.invitation
    memory = WitnessFile(folder.path / MEMORY, invitation.run, invitation.me.name, invited.state_key)
    stack.callback(memory.close)
    keys = {member.name: member.key for member in invitation.members}
    found = Witnesses(
        invitation.run,
        invitation.me.name,
        memory,
        sign=lambda content: invited.identity.sign(PURPOSE, content),
        signed=lambda peer, signature, content: keys[peer].signed(signature, PURPOSE, content),
        own=held.receipts,
    )
    stack.callback(found.keep)  # before the file is closed
    return found


def check_receipts(witnesses: Witnesses | None, name: str) -> None:
    """Compare a ledger with what was countersigned of it, before anything is charged; nothing overrules that.

    Parameters
    ----------
    witnesses : Witnesses or None
        Witnesses, after the neighbours were met.
    name : str
        The party.

    Raises
    ------
    OlderLedger
        If the ledger has forgotten something.
    """
    lines = [] if witnesses is None else witnesses.forgotten()
    if lines:
        raise OlderLedger(
            f"{name}: this is not the newest ledger: {'; '.join(lines)}, so it is a backup, or another one, and with "
            "it the node would release again what it has released; nothing was charged. Put the newest ledger back; "
            "if it is lost, the node's part in this run is over, and the others go on without it. --believe-store "
            "overrules none of this; if the peer lies, found the federation anew without it"
        )


RECALL = 10.0
"""Most seconds for which a node that goes on waits for what its peers know of it; they may be away for long."""


class OlderStore(CallerError):
    """The store has forgotten what peers know of this node."""


@dataclass
class Gathering:
    """Waiting for neighbours.

    Attributes
    ----------
    peers : Peers
        Sealed channels to the other parties.
    transport : MqttTransport
        Open.
    folder : StateFolder
        Folder of the log.
    clock : callable
        Seconds.
    reach : PeerReach
        Peers that take what the node sends.
    look : callable
        Called again and again.
    stopping : str
        Reason why the waiting is to end.
    """

    peers: Peers
    transport: MqttTransport
    folder: StateFolder
    clock: Callable[[], float]
    reach: PeerReach
    look: Callable[[float], object] = field(default=lambda now: None)
    stopping: str = ""

    def stop(self, why: str) -> None:
        """Have the waiting end; also from a signal handler."""
        self.stopping = self.stopping or why
        self.transport.wake()

    def gather(self, neighbours: Iterable[str], patience: float, recalls: bool = False) -> None:
        """Wait until all neighbours have answered a probe, at most so many seconds, and for one of them for ever.

        A node whose reach has no limit goes ahead without any; one that ``recalls`` only hears what they
        know of it.
        """
        wanted, until, told = set(neighbours), self.clock() + patience, False
        while not self.stopping and (missing := self._missing(wanted, recalls)):
            now = self.clock()
            alone = missing == wanted and not recalls and math.isfinite(self.reach.limit)
            if now >= until and not told:
                self.folder.warn(self._without(missing, now, patience, alone))
                told = True
            if now >= until and not alone:
                return
            self._publish(() if recalls else self.reach.probe(missing, now))
            self._turn(min(0.5, until - now) if now < until else 0.5, now)

    def _missing(self, wanted: Collection[str], recalls: bool) -> set[str]:
        states, told = self.peers.states(self.clock()), self.peers.counters()
        return {name for name in wanted if name not in told or not (recalls or states[name].passed)}

    def _without(self, missing: Collection[str], now: float, patience: float, alone: bool) -> str:
        unheard = self._unheard(missing, now)
        heard = [f"{name} takes nothing: {self.reach.reason(name)}" for name in sorted(set(missing) - unheard)]
        parts = [f"{', '.join(sorted(unheard))} not heard"] * bool(unheard) + heard
        said = f"within {patience:g} s {'; '.join(parts)}"
        if alone:
            return f"has reached nobody, charges nothing, and waits: {said}"
        return f"goes ahead without {', '.join(sorted(missing))}: {said}"

    def _turn(self, patience: float, now: float) -> None:
        """Send what is due, and take what comes; frames among it come again, since nothing acknowledges them."""
        self._publish([*self.peers.wake(now), *self.reach.look({}, now)])
        datagram = self.transport.receive(patience)
        if datagram is not None:
            self._publish(self.peers.open(datagram.sender, datagram.payload, self.clock())[1])
        self.look(self.clock())

    def _unheard(self, names: Collection[str], now: float) -> set[str]:
        states = self.peers.states(now)
        return {name for name in names if states[name].state in ("never heard", "gone")}

    def _publish(self, datagrams: Iterable[tuple[str, bytes]]) -> None:
        for to, datagram in datagrams:
            self.transport.send(to, datagram)


def check_memory(links: Mapping[str, Link], peers: Peers, state: Path) -> None:
    """Compare a store with what its peers know.

    Raises
    ------
    OlderStore
        If the store has forgotten something.
    """
    lost = forgotten(links, peers.counters())
    if lost:
        known = "; ".join(f"{name} {what}" for name, what in lost.items())
        raise OlderStore(
            f"{state}: this is not the newest state of the node: {known} "
            "than the store holds, so it is a backup, or a new one; nothing was charged. Put the newest state back, or "
            "name it by --store; if it is lost, the node's part in this run is over, and the others go on without it "
            "(--believe-store, if you know that these peers are wrong)"
        )
