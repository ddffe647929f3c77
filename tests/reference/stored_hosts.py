"""Hosts of faults joined by a store: its real transport, in virtual time, over listings that are late, lose and double.

    python -m tests.reference.stored_hosts 2000 [name ...]

tries so many seeds of each name of `tests.properties.test_fault_seeds`. Each frame is an object that its sender's
transport writes. What a schedule says of a frame is what listings do: it is shown late, never, or gone for a while and
there again. A process that comes back has a transport that has read nothing, and finds all that is not deleted. Sealing
is left out, so what seals refuse as repeated or old comes to sessions, too.
"""

from __future__ import annotations

import hashlib
import math
import sys
import time
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

from gossamer.faults import trials
from gossamer.faults.hosts import LinkedHosts
from gossamer.protocol.messages import decode_frame, encode_frame
from gossamer.runtimes.host import Arrived
from gossamer.runtimes.loop import Action
from gossamer.runtimes.object_store import transport
from gossamer.runtimes.object_store.transport import StoreTransport

POLL, KEPT = 0.25, 20.0
"""Seconds between two listings, and for which an object lies that nobody has read: less than runs last."""


class Listings:
    """A store in memory, whose listings are as they are told: ``shown`` has the times of each object, in pairs."""

    def __init__(self, clock: Callable[[], float], totals: Counter[str]) -> None:
        self.objects: dict[str, bytes] = {}
        self.shown: dict[str, list[tuple[float, float]]] = {}
        self.read: set[str] = set()
        self.clock, self.totals = clock, totals

    def _strip_protocol(self, place: str) -> str:
        return place.partition("://")[2]

    def find(self, folder: str, detail: bool = False) -> Any:
        now = self.clock()
        found = {
            path: {"type": "file", "size": len(self.objects[path])}
            for path, spans in self.shown.items()
            if path.startswith(f"{folder}/".replace("//", "/")) and any(start <= now < end for start, end in spans)
        }
        return found if detail else list(found)

    def pipe_file(self, path: str, content: bytes) -> None:
        assert path not in self.objects, "no name is used twice"
        self.totals["written"] += 1
        self.objects[path] = content

    def cat_file(self, path: str, start: int, end: int) -> bytes:
        self.totals["read again" if path in self.read else "read"] += 1
        self.read.add(path)
        return self.objects[path][start:end]

    def rm_file(self, path: str) -> None:
        del self.objects[path]
        self.shown.pop(path, None)
        self.totals["deleted" if path in self.read else "deleted unread"] += 1


class StoredHosts(LinkedHosts):
    """Hosts whose frames are objects."""

    totals: ClassVar = Counter[str]()
    """Over all runs: objects that were written, shown late, never and twice, read and read again, deleted, and deleted
    before anybody had read them."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._arrivals: list[float] = []
        self._looks: set[tuple[str, float]] = set()
        super().__init__(*arguments, **options)
        self.store = Listings(lambda: self.now, self.totals)
        transport.time = SimpleNamespace(monotonic=lambda: self.now)  # type: ignore[assignment]
        self.transports = {name: self._transport(name) for name in self.hosts}

    def _transport(self, name: str) -> StoreTransport:
        made = StoreTransport("run", name, "memory://share", poll=POLL)
        made._store, made._kept = self.store, KEPT
        made._process = hashlib.blake2b(f"{name} {self._lives[name]}".encode(), digest_size=8).hexdigest()
        return made

    def _at(self, when: float, name: str, do: Action, what: Any = None, life: int | None = None) -> None:
        if do == self._take:  # of a frame on its way
            self._arrivals.append(when)
        else:
            super()._at(when, name, do, what, life)

    def _transmit(self, name: str, to: str, arrived: Arrived) -> None:
        self._arrivals = []
        super()._transmit(name, to, arrived)
        mine, before = self.transports[name], set(self.store.objects)
        mine.send(to, encode_frame(arrived.frame))
        mine._write()
        (path,) = self.store.objects.keys() - before
        self.totals["never shown"] += not self._arrivals
        self.totals["shown late"] += any(when > self.now + POLL for when in self._arrivals)
        self.totals["shown twice"] += len(self._arrivals) == 2
        match sorted(self._arrivals):
            case [once]:
                self.store.shown[path] = [(once, math.inf)]
            case [first, again]:
                gone = next_poll(first)
                self.store.shown[path] = [(first, gone + POLL / 2), (max(again, gone + 3 * POLL / 2), math.inf)]
        for start, end in self.store.shown.get(path, ()):
            self._look_after(to, start)
            if end < math.inf:
                self._look_after(to, end)

    def _look_after(self, name: str, when: float) -> None:
        look = (name, next_poll(when))
        if look not in self._looks:
            self._looks.add(look)
            self._schedule(look[1], self._look, name, None)

    def _look(self, name: str, _: None, now: float) -> None:
        """A poll, which is an event if something has come: nobody else sees it."""
        if name in self.away:
            return
        mine = self.transports[name]
        mine._look()
        mine._delete()
        if came := list(iter(lambda: mine.receive(0.0), None)):
            self._happen(name, self._came, [Arrived(one.sender, decode_frame(one.payload)) for one in came])

    def _came(self, name: str, frames: list[Arrived], now: float) -> None:
        for arrived in frames:
            self._take(name, arrived, now)

    def _restart(self, name: str, _: None, now: float) -> None:
        self.transports[name] = self._transport(name)
        self._look_after(name, now)
        super()._restart(name, _, now)


def next_poll(when: float) -> float:
    """Time of the first listing that has what is shown from ``when`` on."""
    return POLL * math.ceil(when / POLL)


def main() -> None:
    from tests.properties.test_fault_seeds import OTHERS, SPECS, trial
    from tests.reference.failing import first_failure

    trials.LinkedHosts = StoredHosts  # type: ignore[misc]
    seeds, names = int(sys.argv[1]), sys.argv[2:] or ["gossip", "fedbuff", "fedavg", "graph_federated"]
    assert {*names} <= {**SPECS, **OTHERS}.keys()
    for name in names:
        StoredHosts.totals.clear()
        begun = time.process_time()
        failure = first_failure(trial(name), range(seeds))
        said = "no seed fails" if failure is None else str(failure)
        print(
            f"{name}: {seeds} seeds in {time.process_time() - begun:.0f} s; {said}; {dict(StoredHosts.totals)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
