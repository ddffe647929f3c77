"""What a node does, on its way to its store; and the node as it was, on its way back.

Nodes and sessions are state machines, so that a turn of a runtime is: let events happen to the node, `Journal.commit`,
and only then put frames on links, start tasks and set timers.

    outputs = session.receive(sender, frame, now)
    effects = journal.handle(Received(sender, message), now)          # for what the session delivers
    outputs += session.send(to, message, now)                         # for what the node sends
    journal.commit(session.state(), now)                              # one transaction
    ...                                                               # now, and not before, carry out the outputs

| entry | key | value |
|---|---|---|
| `clock` | nothing | seconds on the node's clock |
| `link` | peer | its `Link`, but for messages, and what is half-way in chunks |
| `outbox`, `early` | peer and number | a message |
| `task` | id | the `Compute` or `Release` that was not answered |
| `timer` | name | when it is due, in seconds on the node's clock |
| `finished` | nothing | the node's reason |
| `kept` | name | what the runtime wants back |

A step of the journal is (now, event, digest of the effects): effects are as large as messages, and follow from events.

What a peer has acknowledged, and when things were transmitted, may be behind in the store: the node that comes back
transmits a little more than it has to. So a turn that brings nothing else costs no transaction, and is written with the
next one that does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gossamer.protocol.effects import CancelTimer, Compute, Effect, Finish, Release, SetTimer
from gossamer.protocol.encoding import encode
from gossamer.protocol.events import Answered, Completed, Elapsed, Event, Refused, Resumed, Started
from gossamer.protocol.link import Link
from gossamer.protocol.node import Node, state_of
from gossamer.runtimes.storage import Change, Key, Store
from gossamer.runtimes.storage_recovery import MESSAGES, Recovered, digest_of, recover_from

_SMALL = 1 << 20  # bytes of a journal that is read back in no time
_GROWTH = 4  # how many times the bytes of a snapshot its journal may grow to: what snapshots add to what is written

# What an entry of a link leaves out: its messages have entries of their own; what is half-way in chunks comes again.
_APART: dict[str, Any] = {"outbox": {}, "early": {}, "outgoing": None, "incoming": None}


class Journal:
    """Writes what one node does to its store, one transaction a turn.

    Parameters
    ----------
    node : Node
        Fresh; it gets the state that it had.
    store : Store
        Of this node.
    every : int
        Most events between two snapshots; there are fewer between large ones.

    Attributes
    ----------
    recovered : Recovered
        What was in the store.

    Raises
    ------
    StorageError
        As `storage_recovery.recover`.
    """

    def __init__(self, node: Node, store: Store, every: int = 100) -> None:
        self.node, self.store, self.every = node, store, every
        contents = store.contents()
        self.recovered: Recovered = recover_from(node, store.name, contents)
        found = self.recovered
        self._events, self._bytes = len(contents.steps), sum(map(len, contents.steps))  # since the snapshot
        self._snapshot_bytes = len(contents.snapshot or b"")
        self._links = {peer: (_header(link), _numbers(link)) for peer, link in found.links.items()}
        self._messages = {
            (kind, peer): set(getattr(link, kind)) for peer, link in found.links.items() for kind in MESSAGES
        }
        self._open: dict[str, set[Any]] = {"task": set(found.tasks), "timer": set(found.timers)}
        self._steps: list[bytes] = []
        self._entries: dict[Key, bytes | None] = {}
        self._pressing = False

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Let ``event`` happen to the node, and note it; the effects must wait for `commit`.

        Raises
        ------
        PeerError
            If a peer broke the protocol. Nothing has changed, and nothing is noted.
        """
        effects = self.node.handle(event, now)
        self._steps.append(encode((now, event, digest_of(effects))))
        if (ended := _ENDED.get(type(event))) is not None:
            ended(self, event)
        for effect in effects:
            if (begun := _BEGUN.get(type(effect))) is not None:
                begun(self, effect, now)
        return effects

    def keep(self, name: str, value: Any) -> None:
        """Note a value that `encoding` takes, for `Recovered.kept`; it replaces that of the same name."""
        self._put("kept", name, value)
        self._pressing = True

    def stage(self, links: Mapping[str, Link], now: float) -> None:
        """Have the store write all that was noted since the last time, and the session's ``links``, by its next commit.

        Parameters
        ----------
        links : mapping of str to Link
            `Session.state`; those of peers with whom nothing happened may be left out. They are read at once.
        now : float
            Seconds on the node's clock.
        """
        pressing = [self._note_link(peer, link) for peer, link in links.items()]
        if not (self._steps or self._pressing or any(pressing)):
            return
        self._pressing = False
        self._put("clock", None, now)
        self.store.stage(Change(tuple(self._steps), self._entries, self._snapshot()))
        self._steps, self._entries = [], {}

    def commit(self, links: Mapping[str, Link], now: float) -> None:
        """`stage`, and make it durable. Only after this returns may outputs and effects be carried out.

        Raises
        ------
        StorageError
            If that did not succeed. The node has to end.
        """
        self.stage(links, now)
        self.store.commit()

    def _put(self, kind: str, key: Any, value: Any) -> None:
        name = kind, encode(key)
        self._entries.pop(name, None)  # so that what is written last comes last
        self._entries[name] = encode(value)
        if kind in self._open:
            self._open[kind].add(key)

    def _drop(self, kind: str, key: Any) -> None:
        if key in self._open[kind]:
            self._open[kind].remove(key)
            self._entries[kind, encode(key)] = None

    def _drop_all(self) -> None:
        for kind, keys in self._open.items():
            for key in sorted(keys):
                self._drop(kind, key)

    def _note_link(self, peer: str, link: Link) -> bool:
        """Note what is new about a link, and whether outputs have to wait for it. A number's message never changes."""
        pressing = False
        header, numbers = _header(link), _numbers(link)
        known = self._links.get(peer)
        if known is None or known != (header, numbers):
            self._put("link", peer, replace(link, **_APART))
            pressing = known is None or known[1] != numbers
            self._links[peer] = header, numbers
        for kind in MESSAGES:
            before, messages = self._messages.get((kind, peer), set()), getattr(link, kind)
            for number in messages.keys() - before:
                self._put(kind, (peer, number), messages[number])
                pressing = True
            for number in before - messages.keys():
                self._entries[kind, encode((peer, number))] = None
            self._messages[kind, peer] = set(messages)
        return pressing

    def _snapshot(self) -> bytes | None:
        """The state of the node, if it is time for a snapshot."""
        self._events += len(self._steps)
        self._bytes += sum(map(len, self._steps))
        if self._events < self.every and self._bytes < max(_SMALL, _GROWTH * self._snapshot_bytes):
            return None
        state = encode(state_of(self.node))
        self._events, self._bytes, self._snapshot_bytes = 0, 0, len(state)
        return state


def _header(link: Link) -> bytes:
    return encode(replace(link, **_APART))


def _numbers(link: Link) -> tuple[int, int]:
    """What must not be behind: a peer that has seen a higher number refuses the link."""
    return link.transmitted, link.delivered


# Events that end a task or a timer, and effects that begin one.
_ENDED: dict[type[Event], Callable[[Journal, Any], None]] = {
    Started: lambda journal, event: journal._drop_all(),
    Resumed: lambda journal, event: journal._drop_all(),
    Elapsed: lambda journal, event: journal._drop("timer", event.timer),
    Completed: lambda journal, event: journal._drop("task", event.id),
    Answered: lambda journal, event: journal._drop("task", event.id),
    Refused: lambda journal, event: journal._drop("task", event.id),
}
_BEGUN: dict[type[Effect], Callable[[Journal, Any, float], None]] = {
    SetTimer: lambda journal, effect, now: journal._put("timer", effect.name, now + effect.after),
    CancelTimer: lambda journal, effect, now: journal._drop("timer", effect.name),
    Compute: lambda journal, effect, now: journal._put("task", effect.task.id, effect),
    Release: lambda journal, effect, now: journal._put("task", effect.id, effect),
    Finish: lambda journal, effect, now: journal._put("finished", None, effect.reason),
}


class Inputs:
    """A store as a bare journal, for a runtime whose whole state follows from its inputs: see `runtimes.host`.

    Parameters
    ----------
    store : Store
        Of this node; with nothing else in it.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    def append(self, entry: bytes) -> None:
        """Stage ``entry``."""
        self.store.stage(Change((entry,)))

    def snapshot(self, state: bytes) -> None:
        """Stage ``state``, in the place of all entries so far."""
        self.store.stage(Change(snapshot=state))

    def commit(self) -> None:
        """Make durable what was staged."""
        self.store.commit()

    def load(self) -> tuple[bytes | None, list[bytes]]:
        """The newest snapshot, and the entries after it."""
        contents = self.store.contents()
        return contents.snapshot, contents.steps
