"""Faults of one party among eight and a server, over a Mosquitto with TLS: the overview names it, and nobody else.

Each fault is made, waited for and mended in the same federation. Parties run as processes of their own, and so does the
overview, which goes on all the while. `python -m tests.end_to_end.test_overview_faults FOLDER 8` prints the times.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.deployments import experiment
from tests.reference.founded_broker import FoundedBroker, free_port
from tests.reference.lossy_relay import PUBACK, PUBLISH, Loses, LossyRelay

from gossamer.cli.federation.local_federation import LocalFederation
from gossamer.deployment.founding.founding import kept_authority
from gossamer.deployment.party.state_folder import StateFolder
from gossamer.keys.invitations import read_signed
from gossamer.runtimes.mqtt.broker import Mosquitto

MOUNT = ["unshare", "--user", "--map-root-user", "--mount"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(Mosquitto.missing() is not None, reason="needs mosquitto"),
]
SPEC = """
dataset: digits
objective: {name: softmax, dtype: float64}
algorithm: {name: audp, nodes: %d, batch_size: 16, updates_per_node: 4000}
budget: {epsilon: 100, delta: 1.0e-4}
links: {retry_after: 1, silence: 10}
deployment: {release_deadline: 1.0}
"""
_PATIENCE = 600.0
_OPTIONS = ("--connect-timeout", "300", "--wait", "300")
_DISK = 'mount -t tmpfs -o size=8m none "$0" || exit 77; exec "$@"'
# The store is open for writing, so its file system stays as it is, and what is opened from now on may only be read.
_READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0"'
_MAIN = "from gossamer.cli import main; import sys; sys.exit(main(sys.argv[1:]))"
_OLD_VERSION = f"import gossamer.version as v; v.__version__ = '0.0.9'; {_MAIN}"
_THROUGH = f"""import socket
there = socket.create_connection
socket.create_connection = lambda address, *rest, **more: there((address[0], %d), *rest, **more)
{_MAIN}"""
_STOPPED_CLOCK = f"import time; then = time.time(); time.time = lambda: then; {_MAIN}"


class Drill:
    """A federation with its broker, its parties' processes, and the overview of them."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder, url = folder / "f", f"mqtts://127.0.0.1:{free_port()}"
        self.federation = LocalFederation.found(experiment(SPEC % nodes), self.folder, url)
        self.broker, self.pids = FoundedBroker(self.folder), dict[str, int]()
        self.said, self.stack = folder / "overview.jsonl", ExitStack()
        self.programs: list[subprocess.Popen[bytes]] = []

    def state(self, name: str) -> Path:
        return self.folder / name / "state"

    def start(self, name: str) -> None:
        """Start a party, forked off a process that has imported all it needs."""
        self.federation.start(name, *_OPTIONS)
        self.pids[name] = self.federation.processes[name].pid or 0

    def start_as(self, name: str, code: str, *before: str) -> None:
        """Start a party as a program of its own."""
        command = self.federation.command(name, *_OPTIONS)
        with (self.folder / name / "output.log").open("ab") as output:
            process = subprocess.Popen(
                [*before, sys.executable, "-c", code, *command],
                stdout=output,
                stderr=output,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        self.programs.append(process)
        self.pids[name] = process.pid

    def start_on_own_disk(self, name: str) -> None:
        """Start a party whose state folder is a file system of its own, which it takes with it when it ends."""
        self.state(name).mkdir(mode=0o700, exist_ok=True)
        self.start_as(name, _MAIN, *MOUNT, "sh", "-c", _DISK, str(self.state(name)))

    def start_through_relay(self, name: str) -> LossyRelay:
        """Start a party whose connection to the broker goes through a machine that may lose packets."""
        relay = self.stack.enter_context(LossyRelay(self.folder, name))
        self.start_as(name, _THROUGH % relay.port)
        return relay

    def end(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        with suppress(ProcessLookupError):  # it has ended by itself
            os.kill(self.pids[name], how)
        self.wait_for_end(name)

    def wait_for_end(self, name: str) -> None:
        self.wait(lambda: StateFolder(self.state(name)).process is None, f"{name} to end")

    def disk(self, name: str) -> Path:
        """The state folder as the process sees it."""
        return Path(f"/proc/{self.pids[name]}/root{self.state(name)}")

    def overview(self) -> dict[str, Any]:
        lines = self.said.read_text().split("\n")[:-1] if self.said.exists() else []  # what is after is being written
        found: dict[str, Any] = json.loads(lines[-1]) if lines else {}
        return found

    def red(self) -> list[str]:
        return sorted(name for name, one in self.overview().items() if one["level"] == "critical")

    def wait(self, condition: Callable[[], bool], what: str) -> float:
        """Wait for a condition; how many seconds it took."""
        begun = time.monotonic()
        while not condition():
            assert time.monotonic() - begun < _PATIENCE, (what, self.problems())
            time.sleep(0.2)
        return time.monotonic() - begun

    def problems(self) -> dict[str, list[str]]:
        return {name: [p["level"] + ": " + p["text"] for p in one["problems"]] for name, one in self.overview().items()}

    def well(self) -> None:
        """Wait until all are."""
        self.wait(lambda: {one["level"] for one in self.overview().values()} == {"ok"}, "all to be well")

    def names(self, name: str, words: str) -> bool:
        """Whether the overview says that of a party."""
        return any(words in one["text"] for one in self.overview().get(name, {}).get("problems", ()))

    def reload(self, change: Callable[[str], str]) -> None:
        """Change the broker's access list; connections stay."""
        acl = self.folder / "broker" / "acl"
        acl.write_text(change(acl.read_text()))
        assert self.broker.process is not None
        self.broker.process.send_signal(signal.SIGHUP)


@contextmanager
def drill(folder: Path, nodes: int) -> Iterator[Drill]:
    there = Drill(folder, nodes)
    with there.broker, there.stack, there.said.open("wb") as said:
        words = ["federation", "status", str(there.folder), "--watch", "--json", "--wait", "60"]
        watch = subprocess.Popen([sys.executable, "-c", _MAIN, *words], stdout=said)
        try:
            yield there
        finally:
            for pid in (watch.pid, *there.pids.values()):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for program in (watch, *there.programs):
                program.wait()


# Each makes a fault at one party, says what the overview has to say of it, and gives what mends it.

Mend = Callable[[], object] | None


def silent(there: Drill, name: str) -> tuple[str, Mend]:
    there.end(name, signal.SIGKILL)
    return "not heard for", lambda: there.start(name)


def hang(there: Drill, name: str) -> tuple[str, Mend]:
    os.kill(there.pids[name], signal.SIGSTOP)
    return "not heard for", lambda: os.kill(there.pids[name], signal.SIGCONT)


def access_list(there: Drill, name: str) -> tuple[str, Mend]:
    run = read_signed(there.folder / "federation.yaml").run
    line = f"topic write gossamer/{run}/to/server/from/{name}\n"
    there.reload(lambda rules: rules.replace(line, ""))
    rules = f"user {name}\n"
    return "not allowed", lambda: there.reload(lambda now: now.replace(rules, rules + line, 1))


def other_version(there: Drill, name: str) -> tuple[str, Mend]:
    there.end(name)
    there.start_as(name, _OLD_VERSION)
    return "runs gossamer 0.0.9", lambda: (there.end(name), there.start(name))


def stopped_clock(there: Drill, name: str) -> tuple[str, Mend]:
    there.end(name)
    there.start_as(name, _STOPPED_CLOCK)
    return "its clock is", lambda: (there.end(name), there.start(name))


def old_copy(there: Drill, name: str) -> tuple[str, Mend]:
    there.end(name)
    state, copy = there.state(name), there.folder / name / "copy"
    shutil.copytree(state, copy)
    there.start(name)

    def releases() -> int:
        return int(StateFolder(state).status().get("releases", 0))

    before = releases()
    there.wait(lambda: releases() > before + 3, "it to go on")
    there.end(name)
    newest = state.rename(there.folder / name / "newest")
    copy.rename(state)
    there.start(name)

    def mend() -> None:
        there.wait_for_end(name)
        shutil.rmtree(state)
        newest.rename(state)
        there.start(name)

    return "not the newest state", mend


def expired_papers(there: Drill, name: str) -> tuple[str, Mend]:
    there.end(name)
    members = read_signed(there.folder / "federation.yaml").members
    paper, key = there.folder / name / "tls.crt", next(one.key for one in members if one.name == name)
    good = paper.read_bytes()
    paper.write_bytes(kept_authority(there.folder).client_of(name, key, datetime.now(UTC) - timedelta(minutes=5)))
    there.start(name)

    def mend() -> None:
        there.end(name, signal.SIGKILL)
        paper.write_bytes(good)
        there.start(name)

    return "its certificate has expired", mend


def _losing(there: Drill, name: str, loses: Loses) -> Mend:
    """Have the way of a party to the broker lose packets, once all is well."""
    there.end(name)
    relay = there.start_through_relay(name)
    folder = StateFolder(there.state(name))
    there.wait(lambda: folder.process is not None and folder.status().get("updates", 0) > 0, "it to go on")
    there.well()
    relay.loses, passes = loses, relay.loses
    return lambda: setattr(relay, "loses", passes)


def large_messages(there: Drill, name: str) -> tuple[str, Mend]:
    """A model has 5,200 bytes, and what is said beside it a few hundred.

    Who was sending one says what is lost; who was waiting for one does not know of it, and its peers say what they see.
    """
    mend = _losing(there, name, lambda kind, size: kind == PUBLISH and size > 4000)
    return "perhaps too large: the broker confirms messages|nothing was acknowledged between it and", mend


def acknowledgements(there: Drill, name: str) -> tuple[str, Mend]:
    mend = _losing(there, name, lambda kind, size: kind == PUBACK)
    return "not acknowledged: the broker has confirmed nothing", mend


def full_disk(there: Drill, name: str) -> tuple[str, Mend]:
    """The party's store is on a small disk from its start on, and is lost with it: its part in the run is over."""
    with suppress(OSError), (there.disk(name) / "filled").open("wb") as file:
        while True:
            file.write(bytes(1 << 16))
            file.flush()
    return "the disk is full|No space left on device", None


def read_only(there: Drill, name: str) -> tuple[str, Mend]:
    enter = ["nsenter", "-t", str(there.pids[name]), "-U", "-m", "--preserve-credentials"]
    subprocess.run([*enter, "sh", "-c", _READ_ONLY, str(there.state(name))], check=True)
    return "may only be read|Read-only file system", None


FAULTS: list[Callable[[Drill, str], tuple[str, Mend]]] = [
    *(silent, hang, access_list, other_version, stopped_clock, old_copy, expired_papers, large_messages),
    *(acknowledgements, full_disk, read_only),
]
RED = {other_version: False}
"""Whether a fault is critical; by default it is."""


def own_disks() -> bool:
    return not (shutil.which("nsenter") is None or subprocess.run([*MOUNT, "true"], capture_output=True).returncode)


def faults(folder: Path, nodes: int, only: Collection[str] = ()) -> dict[str, float]:
    """Make every fault, each at another party, or some; seconds after which the overview had it, by fault."""
    took, broken = dict[str, float](), list[str]()
    with drill(folder, nodes) as there:
        parties = [f"node-{number}" for number in range(nodes)]
        of = {fault: parties[number % (nodes - 2)] for number, fault in enumerate(FAULTS[:-2])}
        of |= dict(zip(FAULTS[-2:], parties[-2:], strict=True)) if own_disks() else {}
        for name in there.federation.members:
            on_disk = name in parties[-2:] and own_disks()
            (there.start_on_own_disk if on_disk else there.start)(name)
        there.well()
        for fault, name in [one for one in of.items() if not only or one[0].__name__ in only]:
            words, mend = fault(there, name)
            seconds = there.wait(
                lambda words=words, name=name: any(there.names(name, word) for word in words.split("|")),
                f"{fault.__name__} of {name}",
            )
            took[fault.__name__] = seconds
            broken += [name] if RED.get(fault, True) else []
            there.wait(
                lambda broken=broken: there.red() == broken, f"{broken} and nobody else to be red of {fault.__name__}"
            )
            print(f"{fault.__name__:15} {seconds:5.1f} s  {there.problems()[name][0]}", flush=True)
            if mend is not None:
                broken.clear()
                mend()
                there.well()
    return took


def test_the_overview_names_the_party_of_each_fault(tmp_path: Path) -> None:
    """Each within the patience of a test; how many seconds it takes on a quiet machine is in the decision."""
    assert len(faults(tmp_path, 4)) == len(FAULTS) - (0 if own_disks() else 2)


if __name__ == "__main__":
    print(faults(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
