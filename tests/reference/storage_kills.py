"""A process that kills its children while they write, and looks at what they left. Run as a program:

    python storage_kills.py FOLDER ROUNDS SEED        python storage_kills.py FOLDER full

It starts no thread, so that its children can simply be forks. A child says on a pipe what it was told is durable.
Power does not fail here: what the operating system was given survives a killed process, synchronised or not.
"""

from __future__ import annotations

import json
import math
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
from tests.reference.durable_node import Note, Writer

from gossamer.privacy.mechanisms import Gaussian, NeighboringRelation, Poisson, ReleaseKind
from gossamer.protocol.encoding import encode
from gossamer.protocol.events import Stop
from gossamer.protocol.messages import Acknowledge
from gossamer.protocol.node import state_of
from gossamer.protocol.session import SessionSettings
from gossamer.runtimes.host import Arrived, End, Host, HostBroken
from gossamer.runtimes.storage.file import StorageError
from gossamer.runtimes.storage.ledger import LedgerFile, admits_all
from gossamer.runtimes.storage.store import SqliteStore

SETTINGS = SessionSettings(retry_after=1.0, longest_retry=8.0, silence=math.inf)
KIND = ReleaseKind(Gaussian(1.0, 1.0), Poisson(0.1), 3)
BUDGET = admits_all(NeighboringRelation.ADD_OR_REMOVE_ONE)
PLAN = {KIND: 1_000_000}
SIZE, LAG, EVERY = 2000, 5, 7  # of models; messages that stay unacknowledged; inputs between snapshots


class Life:
    """One life of the node: from what its files hold."""

    def __init__(self, folder: Path) -> None:
        self.store = SqliteStore(folder / "a.store", "run", "a")
        self.host = Host(Writer("a", SIZE), SETTINGS, self.store, every=EVERY)
        self.file = LedgerFile(folder / "owner.ledger")
        self.ledger = self.file.open("a", "wards", "run", BUDGET, PLAN, math.inf)

    @property
    def sent(self) -> int:
        return int(self.host.node.state.sent.get("b", 0))

    def write(self) -> None:
        """One turn: a note is sent, and an older one acknowledged."""
        number = self.sent + 1
        answers = [(Arrived("b", Acknowledge(number - LAG)), float(number))] if number > LAG else []
        self.host.turn([(End("b"), float(number)), *answers])

    def check(self) -> None:
        """What is there is what an undisturbed life would have, to the last bit."""
        sent = self.sent
        expected = Writer("a", SIZE)
        for number in range(1, sent + 1):
            expected.handle(Stop("b"), float(number))
        assert encode(state_of(expected)) == encode(state_of(self.host.node))
        link = self.host.session.links["b"] if sent else None
        outbox = {} if link is None else link.outbox
        # The acknowledgement of a turn is in the transaction of its note.
        assert list(outbox) == list(range(max(1, sent - LAG + 1), sent + 1)), (sent, list(outbox))
        assert all(isinstance(note, Note) and note.number == number for number, note in outbox.items())
        if link is not None:
            assert np.array_equal(outbox[sent].model.values, expected.state.w.values)  # type: ignore[attr-defined]

    def close(self) -> None:
        self.store.close()
        self.file.close()


def child(work: Callable[[Callable[[bytes], None]], None]) -> tuple[int, int]:
    """Fork; the child's process number, and the end of the pipe on which it says what is durable."""
    read, write = os.pipe()
    process = os.fork()
    if process:
        os.close(write)
        return process, read
    try:
        work(lambda said: os.write(write, said))
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def forever(folder: Path, say: Callable[[bytes], None]) -> None:
    life = Life(folder)
    while True:
        life.write()
        say(b"w")
        life.ledger.charge(KIND)
        say(b"c")  # now its noise would be drawn


def heard(read: int, words: int) -> bytes:
    """The next ``words`` that a child says: it is waited for, however busy the machine is."""
    said = b""
    while len(said) < words:
        word = os.read(read, words - len(said))
        assert word, "the child ended by itself"
        said += word
    return said


def said_by(read: int) -> Counter[str]:
    with os.fdopen(read, "rb") as pipe:
        return Counter(pipe.read().decode())


def kill_rounds(folder: Path, rounds: int, seed: int) -> dict[str, int]:
    """Kill a child ``rounds`` times, each time with the files that the last one left.

    At a random instant after it has done a random number of things.
    """
    instants = random.Random(seed)
    sent = charged = unsaid = overcounted = 0
    for _ in range(rounds):
        process, read = child(lambda say: forever(folder, say))
        before = heard(read, instants.randint(2, 8))
        time.sleep(instants.uniform(0.0, 0.02))
        os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        assert os.WIFSIGNALED(status), "the child failed by itself"
        said = Counter(before.decode()) + said_by(read)
        life = Life(folder)
        life.check()
        assert sent + said["w"] <= life.sent <= sent + said["w"] + 1, (sent, said, life.sent)
        assert charged + said["c"] <= life.ledger.releases <= charged + said["c"] + 1, (charged, said)
        unsaid += life.sent - sent - said["w"]
        overcounted += life.ledger.releases - charged - said["c"]
        sent, charged = life.sent, life.ledger.releases
        life.close()
    return {"sent": sent, "charged": charged, "unsaid": unsaid, "overcounted": overcounted}


def fill_disk(folder: Path) -> dict[str, int]:
    """Let a child write until its files may not grow; twice, for the store and for the ledger."""
    Life(folder).close()

    def until_full(say: Callable[[bytes], None]) -> None:
        life = Life(folder)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, resource.RLIM_INFINITY))
        try:
            while True:
                life.write()
                say(b"w")
        except HostBroken as error:
            print(error, file=sys.stderr)
            say(b"f")
        try:
            while True:
                life.ledger.charge(KIND)
                say(b"c")
        except StorageError as error:
            print(error, file=sys.stderr)
            say(b"F")
        os.kill(os.getpid(), signal.SIGKILL)

    process, read = child(until_full)
    os.waitpid(process, 0)
    said = said_by(read)
    life = Life(folder)
    life.check()
    assert said["f"] == said["F"] == 1, said
    assert life.sent == said["w"] > 10, (life.sent, said)
    assert life.ledger.releases == said["c"] > 10, (life.ledger.releases, said)
    life.write()  # there is room again
    life.check()
    life.ledger.charge(KIND)
    life.close()
    return {"sent": said["w"], "charged": said["c"]}


if __name__ == "__main__":
    place = Path(sys.argv[1])
    if sys.argv[2] == "full":
        print(json.dumps(fill_disk(place)))
    else:
        print(json.dumps(kill_rounds(place, int(sys.argv[2]), int(sys.argv[3]))))
