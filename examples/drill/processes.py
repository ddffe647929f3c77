"""The drill with real processes: a broker, a party each, and incidents whose outages are a hundredth as long.

    python examples/drill/processes.py examples/drill/gossip.yaml --runs 1

The first run is without incidents; the others are compared with it. The exit code is 1 if something did not hold.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from network import HOST, Network

from gossamer.cli.federation.local_federation import POLICY, STATE, LocalFederation
from gossamer.cli.printing import table, wrapped
from gossamer.deployment.owner.policy import read_policy
from gossamer.deployment.party.data_side import UNIT_LEDGER
from gossamer.deployment.party.state_folder import StateFolder
from gossamer.errors import CallerError
from gossamer.experiment.specs.spec import Experiment
from gossamer.experiment.specs.spec_file import read_spec
from gossamer.runtimes.mqtt.broker import EmbeddedBroker, LocalBroker, Mosquitto
from gossamer.runtimes.storage.ledger import LedgerFile
from gossamer.strict_yaml import load_yaml

HERE = Path(__file__).parent
GONE = 120.0
"""Seconds of silence after which parties take one for gone, at the end: longer than any outage that has an end."""
RECONNECT = 30.0
"""Most seconds until a party tries anew to reach its broker; what takes as long as this is one retry."""
START = 30.0
"""Most seconds for a process to start on a busy machine, to meet its peers, and to do again what was not saved."""
SLACK = 5.0
"""Seconds by which processes that are not disturbed may differ on a busy machine."""
LONGEST = 900.0
"""Seconds after which a run counts as not ended."""


@dataclass(frozen=True)
class Incident:
    """What befalls a party (of all kinds but ``broker``), at a second of the run, and for how many; None for ever.

    A ``backup`` was ``copied`` so many seconds before.
    """

    kind: str
    at: float
    party: str | None = None
    seconds: float | None = None
    copied: float = 0.0

    @property
    def lasts(self) -> float:
        return math.inf if self.seconds is None else self.seconds

    def __str__(self) -> str:
        return WORDS[self.kind].format(lasts=duration(self.lasts))


@dataclass(frozen=True)
class Script:
    """All that happens; each run moves each incident by at most ``spread`` seconds."""

    incidents: tuple[Incident, ...]
    spread: float = 0.0

    @classmethod
    def read(cls, path: Path) -> Script:
        content: Any = load_yaml(path.read_text(encoding="utf-8"))
        return cls(tuple(Incident(**one) for one in content["incidents"]), content.get("spread", 0.0))

    def moved(self, run: int) -> Script:
        draw = random.Random(run)
        moved = (
            replace(one, at=max(one.at + draw.uniform(-self.spread, self.spread), one.copied)) for one in self.incidents
        )
        return replace(self, incidents=tuple(moved))

    def of(self, party: str) -> list[Incident]:
        return [one for one in self.incidents if one.party == party]


WORDS = {
    "network": "no network for {lasts}",
    "broker": "broker away for {lasts}",
    "killed": "killed while it saves, {lasts}",
    "gone": "gone for ever",
    "backup": "old backup, {lasts}",
}


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    return f"{seconds / 60:.3g} min" if seconds >= 60 else f"{seconds:.3g} s"


@dataclass
class Run:
    """One run of a federation, and what befalls it.

    Attributes
    ----------
    federation : LocalFederation
        Founded, in a folder of its own.
    broker : LocalBroker
        The only one.
    network : Network
        Between the two.
    began, ended : mapping of str to float
        When each party made its first update, or was seen with it; and when it had finished.
    said : dict of str to str
        What a party said when it did not go on.
    missed : list of Incident
        Those that were to happen after the end.
    """

    federation: LocalFederation
    broker: LocalBroker
    network: Network
    began: dict[str, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    missed: list[Incident] = field(default_factory=list)

    def state(self, party: str) -> Path:
        return self.federation.folder / party / STATE

    def start(self, party: str) -> None:
        self.federation.start(party, "--gone-after", str(GONE), "--wait", "30", "--connect-timeout", "60")

    def kill(self, party: str) -> None:
        """End a party's process, by its own number, with no chance to say anything."""
        process = self.federation.processes[party]
        if process.pid is not None and process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
        process.join()

    def status(self, party: str) -> dict[str, Any]:
        try:
            return StateFolder(self.state(party)).status()
        except CallerError:
            return {}

    def look(self) -> None:
        """Note who has begun, and who has finished."""
        now = time.monotonic()
        for party in self.federation.members:
            status = self.status(party)
            if status.get("releases") or status.get("updates"):
                self.began.setdefault(party, now)
            if status.get("finished"):
                self.ended.setdefault(party, now)

    def took(self, party: str) -> float | None:
        """Seconds from the moment when all had begun to the party's end."""
        return self.ended[party] - max(self.began.values()) if party in self.ended else None

    def charged(self, party: str) -> int | None:
        """Releases in the ledger of a party's data, or of its unit; None where nothing is charged for each."""
        if self.federation.plan.side(party).charges() is None:
            return None  # its server releases what it gives, or it releases nothing
        policy = self.federation.folder / party / POLICY
        place = read_policy(policy).ledger_path if policy.exists() else self.state(party) / UNIT_LEDGER
        with closing(LedgerFile(place)) as file:
            return sum(run.releases for name in file.data_sets for run in file.runs(name))


# What each kind of incident is, with processes


def cut(run: Run, incident: Incident) -> None:
    party = str(incident.party)
    run.network.cut(party)
    time.sleep(incident.lasts)
    run.network.heal(party)


def restart_broker(run: Run, incident: Incident) -> None:
    port = run.broker.port
    run.broker.stop()
    time.sleep(incident.lasts)
    run.broker.start(port)


def kill_while_saving(run: Run, incident: Incident) -> None:
    """Kill a party as soon as its store's log grows: in the midst of a commit, or right after."""
    party = str(incident.party)
    log = run.state(party) / "store.sqlite-wal"
    before = _size(log)
    until = time.monotonic() + 60.0
    while _size(log) == before and time.monotonic() < until:
        pass
    run.kill(party)
    time.sleep(incident.lasts)
    run.start(party)


def lose(run: Run, incident: Incident) -> None:
    run.kill(str(incident.party))


def restore_backup(run: Run, incident: Incident) -> None:
    """Copy a party's state; later kill it, start it on the copy, and if it does not go on, on the newest state."""
    party, copied = str(incident.party), incident.copied
    state = run.state(party)
    backup, newest = state.with_name("backup"), state.with_name("newest")
    shutil.copytree(state, backup, ignore=shutil.ignore_patterns("lock"))  # in use, as backups of whole disks do it
    time.sleep(copied)
    run.kill(party)
    began = time.monotonic()
    state.rename(newest)
    backup.rename(state)
    run.start(party)
    process = run.federation.processes[party]
    process.join(60.0)
    if not process.exitcode:
        return  # it goes on, or has finished meanwhile, and what it made before stays charged
    run.said[party] = run.federation.last_line(party)
    shutil.rmtree(state)
    newest.rename(state)
    time.sleep(max(0.0, began + incident.lasts - time.monotonic()))
    run.start(party)


ACTIONS: Mapping[str, Callable[[Run, Incident], None]] = {
    "network": cut,
    "broker": restart_broker,
    "killed": kill_while_saving,
    "gone": lose,
    "backup": restore_backup,
}


def _size(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


# Runs


def begin(incident: Incident) -> float:
    """Second at which the first thing of an incident is done."""
    return incident.at - incident.copied


def one_run(experiment: Experiment, folder: Path, script: Script | None) -> Run:
    """Run a federation to its end, with incidents or without."""
    broker: LocalBroker = Mosquitto() if Mosquitto.missing() is None else EmbeddedBroker()
    with broker:
        port = broker.port
        network = Network(lambda: port, experiment.links.latency / 2)
        run = Run(LocalFederation.found(experiment, folder, f"mqtt://{HOST}:{network.port}"), broker, network)
        try:
            for party in run.federation.members:
                run.start(party)
            _watch(run, script)
        finally:
            run.federation.stop()
            network.close()
    return run


def _watch(run: Run, script: Script | None) -> None:
    """Have the incidents happen, counted from when all have begun, and wait for the end of all who are there."""
    until = time.monotonic() + LONGEST
    members = set(run.federation.members)
    parties = set(run.federation.prepared.names)
    while not parties <= run.began.keys() and time.monotonic() < until:
        run.look()
        time.sleep(0.1)
    began = time.monotonic()
    incidents = [] if script is None else sorted(script.incidents, key=begin)
    gone = {incident.party for incident in incidents if math.isinf(incident.lasts)}
    under_way: list[threading.Thread] = []
    while time.monotonic() < until:
        run.look()
        while incidents and began + begin(incidents[0]) <= time.monotonic():
            incident = incidents.pop(0)
            if members - gone <= run.ended.keys():
                run.missed.append(incident)
                continue
            under_way.append(threading.Thread(target=ACTIONS[incident.kind], args=(run, incident), daemon=True))
            under_way[-1].start()
        busy = incidents or any(thread.is_alive() for thread in under_way)
        if not busy and members - gone <= run.ended.keys():
            return
        time.sleep(0.1)


def most_later(party: str, script: Script, deadline: float) -> float:
    """Most seconds by which a party may end later: its outages and the broker's, with what it takes to go on.

    Where rounds wait, one ``deadline`` for each incident of anybody, too.
    """
    mine = [one for one in script.incidents if one.party in (None, party) and not math.isinf(one.lasts)]
    retries = [START if one.kind in ("killed", "backup") else RECONNECT for one in mine]
    return SLACK + sum(one.lasts for one in mine) + sum(retries) + len(script.incidents) * deadline


def fates(run: Run, quiet: Run, script: Script) -> tuple[list[tuple[str, ...]], list[str]]:
    """What became of each party, a row each, and what did not hold."""
    rows = [("node", "incident", "later by", "at most", "charged", "end")]
    problems = [f"the run is over before this happens: {incident}; make it longer" for incident in run.missed]
    deadline = getattr(run.federation.prepared.experiment.algorithm, "timeout", None) or 0.0
    for party in run.federation.members:
        mine = script.of(party)
        gone = any(math.isinf(incident.lasts) for incident in mine)
        took, before = run.took(party), quiet.took(party)
        delay = None if took is None or before is None or gone else took - before
        allowed = most_later(party, script, deadline)
        charged, planned = run.charged(party), quiet.charged(party)
        kills = sum(one.kind in ("killed", "backup", "gone") for one in mine)
        end = "gone" if gone else "finished" if party in run.ended else "goes on"
        late = ("-", "-") if delay is None else (duration(delay), duration(allowed))
        counted = "-" if charged is None else str(charged)
        rows.append((party, ", ".join(map(str, mine)) or "none", *late, counted, end))
        if end == "goes on":
            problems.append(f"{party} has not finished: {run.federation.last_line(party)}")
        if delay is not None and party in run.federation.prepared.names and delay > allowed:
            problems.append(f"{party} ends {duration(delay)} later, expected {duration(allowed)} at most")
        complete = charged is None or planned is None or planned <= charged <= planned + kills
        if end == "finished" and not complete:
            problems.append(f"the ledger of {party} has {charged} releases, expected {planned} to {planned} + {kills}")
        if charged == 0:
            problems.append(f"the ledger of {party} shows nothing")
        if any(one.kind == "backup" for one in mine) and party not in run.said:
            print(f"{party} goes on with its old copy: its peers know of nothing that this lacks")
    return rows, problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("spec", type=Path, nargs="?", default=HERE / "gossip.yaml")
    parser.add_argument("--incidents", type=Path, default=HERE / "incidents.yaml")
    parser.add_argument("--runs", type=int, default=1, metavar="N", help="how many with incidents (default: 1)")
    parser.add_argument("--first", type=int, default=0, metavar="K", help="seed of the first (default: 0)")
    options = parser.parse_args()
    experiment, script = read_spec(options.spec), Script.read(options.incidents)
    held = 0
    with tempfile.TemporaryDirectory(prefix="gossamer-drill-") as place:
        quiet = one_run(experiment, Path(place) / "quiet", None)
        for number in range(options.first, options.first + options.runs):
            moved = script.moved(number)
            run = one_run(experiment, Path(place) / f"run-{number}", moved)
            rows, problems = fates(run, quiet, moved)
            print(f"run {number}: all incidents, with processes\n\n{table(rows)}", flush=True)
            for line in [f"{party} said: {said}" for party, said in run.said.items()] + problems:
                print(wrapped(line), flush=True)
            held += not problems
    print(f"{held} of {options.runs} runs: {'everything held' if held == options.runs else 'not everything held'}")
    return 0 if held == options.runs else 1


if __name__ == "__main__":
    sys.exit(main())
