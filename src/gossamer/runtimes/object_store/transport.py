"""Datagrams between named nodes as objects in a store that does nothing but keep them: a shared folder, or a bucket.

A datagram is an object of a name that was never used before, in a folder that only its sender writes to:

    gossamer/RUN/to/NODE/from/SENDER/PROCESS-NUMBER-READER-READ

A node lists what is below ``to/NODE`` once a poll, and reads what is new there. It deletes nothing of others. With each
object it tells, in the name and so with no request of its own, up to which NUMBER of which PROCESS of the peer it has
read; what was read its writer deletes, and what nobody has read for long. No clock of the store is used.

Nobody but the writers of their own folders is believed, and they for themselves alone: names that are none, links, what
is too large, and whatever is no file are counted and left. What a listing shows late, twice or not at all, and objects
that come half, are datagrams that are late, repeated or lost: seals and sessions above are made for these.

One thread does all that the store is asked; a node never waits for it. `fsspec` knows the stores.
"""

# ruff: noqa: E402

from __future__ import annotations

import errno
import math
import os
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path

from gossamer.extras import require

require("fsspec", "a federation over a folder or a bucket needs", "store")  # one clear line where it is missing

# isort: split
import fsspec

from gossamer.files import replaced
from gossamer.protocol.transports import Datagram, Transport, TransportSettings, is_name, times_of, topic
from gossamer.runtimes.object_store.bundle import OBJECT, for_others

_NOBODY = "0" * 16
_HERE, _BEGUN = "here", "."  # an object to oneself, and how the names begin of those that are being written
_OURS = re.compile(rf"{OBJECT.pattern}|\.{OBJECT.pattern}\.new", re.ASCII)  # what a process of ours may have left
_KEPT = 86_400.0  # seconds for which an object lies that nobody has read, and ten times as long as it may take
_SHORTEST, _AGAIN = 0.01, 1.0  # least seconds until the store is asked again, and after it has failed
_DEFAULTS = TransportSettings()


class StoreTransport(Transport):
    """One node's way to the others over a store.

    Parameters
    ----------
    run, node : str
        The run's name and the node's.
    place : str
        URL of a folder or a bucket, as `fsspec` takes it.
    settings, say
        The same as in `Transport`.
    poll, delay : float, optional
        Seconds between two listings, and most that an object takes from one party's store to another's, where they have
        one each.

    Attributes
    ----------
    counts : Counter of str
        Of what was dropped: ``dropped_outgoing`` of our own for want of room, and of others' ``dropped_too_large`` and
        ``dropped_stranger`` (what is no datagram).
    connected : bool
        Whether the store did what it was asked last.
    """

    def __init__(
        self,
        run: str,
        node: str,
        place: str,
        settings: TransportSettings = _DEFAULTS,
        say: Callable[[str], None] = lambda line: None,
        poll: float = 1.0,
        delay: float = 0.0,
    ) -> None:
        super().__init__(run, node, settings, say)
        self.place, self.poll, self._kept = place, max(poll, _SHORTEST), _KEPT + 10 * max(poll, delay)
        scheme = place.partition(":")[0]
        self._is_folder = scheme == "file"
        # Listings that are kept would be of what is no longer so.
        self._store = fsspec.filesystem(scheme, use_listings_cache=False, skip_instance_cache=True)
        self._root = self._store._strip_protocol(place).rstrip("/")
        self._process, self._number = secrets.token_hex(8), 0
        self._queue: deque[tuple[str, bytes, int]] = deque()
        self._taken = self._given = 0  # bytes that came into the queue, and that left it, each counted by one thread
        # Objects of ours that lie there, by peer and path: their numbers, infinite where another process left them, and
        # since when they are known to lie there.
        self._own: dict[str, dict[str, tuple[float, float]]] = {}
        self._known: set[str] = set()  # paths that were read, or are of no use, and are still listed
        self._read: dict[str, tuple[str, int]] = {}  # of each peer: whose process, and up to which number
        self._peers_read: dict[str, int] = {}  # and up to which number of ours it has
        self._closed, self._stirred = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._serve, name="store", daemon=True)

    def receive(self, timeout: float) -> Datagram | None:
        datagram = self._inbox.get(timeout)
        self.counts["received"] += datagram is not None
        return datagram

    def refusal(self, to: str) -> str:
        if not self.connected:
            return f"the store {self.place} does not do what it is asked ({self.reason})"
        lie = len(self._own.get(to, ()))
        return f"it has not read {lie} of what lies in {self.place} for it; does it run, and look there?" if lie else ""

    def _waiting(self) -> int:
        return self._taken - self._given

    def close(self) -> None:
        """End; what lies in the store stays there for those who have not read it."""
        self._closed.set()
        self._stirred.set()
        self._thread.join(5.0)
        self.connected = False

    def _begin(self) -> None:
        self._thread.start()

    def _hand_over(self, to: str, payload: bytes, size: int) -> bool:
        self._taken += size
        self._queue.append((to, payload, size))
        self._stirred.set()
        return True

    def _complaint(self) -> str:
        return f"{self.node} cannot use the store {self.place}: {self.reason}"

    # What follows is done by the store's thread.

    def _serve(self) -> None:
        look_at = -math.inf
        while not self._closed.is_set():
            self._stirred.clear()
            try:
                self._check_folder()
                if not self.counts["connected"]:
                    self._try()
                if time.monotonic() >= look_at:
                    look_at = time.monotonic() + self.poll
                    self._look()
                    self._delete()
                self._write()
            except Exception as error:  # of whatever kind the store has
                self._note_failure(error)
                self._closed.wait(max(_AGAIN, self.poll))
                continue
            self._establish()
            self._stirred.wait(max(0.0, look_at - time.monotonic()))

    def _note_failure(self, error: Exception) -> None:
        self._reason = " ".join(str(error).split()) or type(error).__name__
        self.counts["disconnected"] += self.connected
        self.connected = False
        if self.counts["connected"]:
            return
        if isinstance(error, FileNotFoundError):
            self._fail(f"{self._reason}; is the share mounted, or the bucket made, under this name?")
        elif isinstance(error, FileExistsError):
            self._fail(self._reason)
        elif isinstance(error, PermissionError) or getattr(error, "errno", None) == errno.EROFS:
            own = self._folder("*", self.node)
            self._fail(f"{self._reason}; may {self.node} read there, and make folders and write below {own}/?")
        else:
            self._not_yet(f"the store {self.place} does not answer")

    def _try(self) -> None:
        """Write an object of our own to ourselves, and read it; it stays, since to list nothing is dear in a bucket."""
        path, content = f"{self._inside(self.node, self.node)}/{_HERE}", secrets.token_bytes(16)
        self._put(path, content)
        if self._store.cat_file(path) != content:
            raise OSError("what was written there is not what is read")

    def _folder(self, to: str, sender: str) -> str:
        return f"{self._root}/{topic(self.run, to, sender)}"

    def _inside(self, to: str, sender: str) -> str:
        """A folder, unless somebody has put a link there, by which other files would be listed, written or deleted."""
        folder = self._folder(to, sender).rstrip("/")
        if self._is_folder:
            real = os.path.join(os.path.realpath(self._root), folder[len(self._root) + 1 :])
            if os.path.realpath(folder) != real:
                raise FileExistsError(f"a link in {folder} leads to {os.path.realpath(folder)}; delete the link")
        return folder

    def _put(self, path: str, content: bytes) -> None:
        """Write an object; in a folder under another name first, so that nobody reads half of it."""
        if self._is_folder:
            self._store.makedirs(path.rpartition("/")[0], exist_ok=True)
            with replaced(Path(path), opener=for_others) as file:
                file.write(content)
        else:
            self._store.pipe_file(path, content)

    def _check_folder(self) -> None:
        if self._is_folder and not self._store.isdir(self._root):  # to make it would hide that nothing is mounted
            raise FileNotFoundError(f"there is no folder {self._root}")

    def _write(self) -> None:
        """Write what waits, for a poll at most: what has come must be read, too."""
        now = begun = time.monotonic()
        while self._queue and not self._closed.is_set() and now - begun < self.poll:
            to, payload, size = self._queue[0]
            folder, now = self._inside(to, self.node), time.monotonic()
            if to not in self._own:
                left = (path for path in self._store.find(folder) if _OURS.fullmatch(path[len(folder) + 1 :]))
                self._own[to] = dict.fromkeys(left, (math.inf, now))
            self._number += 1
            process, read = self._read.get(to, (_NOBODY, 0))
            path = f"{folder}/{self._process}-{self._number:012d}-{process}-{read:012d}"
            self._put(path, payload)
            self._own[to][path] = self._number, now
            self._queue.popleft()
            self._given += size
            self.counts["sent"] += 1

    def _look(self) -> None:
        """Read what is new, of each peer as much in turn, for a poll at most or until the node has no room for more."""
        above = f"/{topic(self.run, self.node, '')}"
        listed = self._store.find(self._inside(self.node, ""), detail=True)
        self._known &= listed.keys()
        waiting: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
        for path in sorted(listed.keys() - self._known):
            (sender, _, name), about = path.partition(above)[2].partition("/"), listed[path]
            form = OBJECT.fullmatch(name) if is_name(sender) else None
            if sender == self.node or name.startswith(_BEGUN):
                continue
            if form is None or about["type"] != "file" or about.get("islink"):
                self.counts["dropped_stranger"] += 1
                self._known.add(path)
            elif about["size"] > self.settings.largest_datagram:
                self.counts["dropped_too_large"] += 1
                self._known.add(path)
            elif about["size"]:  # or else it may be on its way
                waiting.setdefault(sender, []).append((path, form.groups()))
        until, first = time.monotonic() + self.poll, len(waiting)  # one of each in any case
        in_turn = (found for rank in zip_longest(*waiting.values()) for found in zip(waiting, rank) if found[1])
        for count, (sender, (path, named)) in enumerate(in_turn):
            if self._closed.is_set() or (count >= first and time.monotonic() > until):
                break
            try:
                content = self._store.cat_file(path, start=0, end=listed[path]["size"])
            except Exception:  # deleted since it was listed, or its writer keeps it to itself: others may be read
                self.counts["not_read"] += 1
                continue
            if not self._inbox.put(Datagram(sender, content)):
                break
            self._known.add(path)
            self._note(sender, *named)

    def _note(self, sender: str, process: str, number: str, reader: str, read: str) -> None:
        before, upto = self._read.get(sender, (process, 0))
        self._read[sender] = process, max(int(number), upto if before == process else 0)
        if reader == self._process:
            self._peers_read[sender] = max(int(read), self._peers_read.get(sender, 0))

    def _delete(self) -> None:
        """Delete our own objects that were read, or that nobody has read for long."""
        old = time.monotonic() - self._kept
        for to, own in self._own.items():
            read = self._peers_read.get(to, 0)
            for path in [path for path, (number, since) in own.items() if number <= read or since < old]:
                del own[path]
                try:
                    self._store.rm_file(path)
                except Exception:  # gone, or ours to write and not to delete: others will not read it again
                    self.counts["not_deleted"] += 1


def connection(
    address: str, run: str, node: str, folder: Path, key: Path, settings: TransportSettings, say: Callable[[str], None]
) -> StoreTransport:
    """A node's way to the others over the store at an address.

    Raises
    ------
    CallerError
        If the package for such a store is missing.
    """
    place = address.partition("?")[0]
    if place.startswith("s3:"):
        require("s3fs", "a federation over a bucket needs", "s3")
    return StoreTransport(run, node, place, settings, say, *times_of(address))
