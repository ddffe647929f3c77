"""``gossamer node``, ``stop``, ``status``, ``up`` and a party's key: a party, its end, how it is, and all parties.

``gossamer status`` is for people and for monitoring.

| its exit code | when |
|---|---|
| 0 | all nodes are well, or have finished |
| 1 | one should be looked at |
| 2 | one needs somebody now, or its state cannot be read |
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.cli.commands import read_experiment, settings_of
from gossamer.cli.logs import STDERR, door_for, live, logged, tell
from gossamer.cli.printing import answered, print_json, say, table
from gossamer.deployment.party.health import SILENCE, HealthLimits, Severity, grade, problems, write_metrics
from gossamer.errors import ENDED_SHORT, CallerError
from gossamer.experiment.specs.folder_names import default_folder

if TYPE_CHECKING:
    from gossamer.deployment.party.agreement import PartyOptions
    from gossamer.deployment.party.state_folder import StateFolder
    from gossamer.report.serving import Door


def status_command(options: argparse.Namespace) -> int:
    """Say how nodes are; the worst of them gives the exit code."""
    limits, now = HealthLimits(options.warn_days, options.warn_budget), time.time()
    read, unread = _read(options.store)
    found = read | {store: {"state": "unreadable", "why": str(why), "process": None} for store, why in unread.items()}
    for status in found.values():
        grade(status, problems(status, now, limits))
    if options.prometheus is not None:
        write_metrics(options.prometheus, {store: read.get(store) for store in found})
    if not read and not options.alive:
        raise next(iter(unread.values()))
    code = worst_of(found)
    if options.alive:
        code = Severity.OK if all(_lives(store, now) for store in options.store) else Severity.WARNING
    if options.json:
        print_json(found)
        return code
    print_problems(found)
    rows: list[tuple[str, ...]] = [("node", "state", "updates", "releases", "finished", "broker", "peers")]
    print(table([*rows, *(_row(status, _name(store, found)) for store, status in found.items())]))
    for store, status in found.items():
        for name, peer in status.get("peers", {}).items():
            say_dropped(f"{_name(store, found)}: dropped of {name}", peer["dropped"])
    return code


def worst_of(found: Mapping[str, Mapping[str, Any]]) -> Severity:
    """The worst level of some statuses."""
    return max(Severity[status["level"].upper()] for status in found.values())


def print_problems(found: dict[str, dict[str, Any]]) -> None:
    """Print what is wrong with nodes, the worst first, and of several the same once; or that all are well."""
    said: dict[tuple[str, str], list[str]] = {}
    for place, status in found.items():
        for one in status["problems"]:
            said.setdefault((one["level"].upper(), one["text"]), []).append(_name(place, found))
    worst = sorted(said.items(), key=lambda line: -Severity[line[0][0]])
    lines = (f"{level}: {'each of ' * (len(of) > 1)}{', '.join(of)} {text}" for (level, text), of in worst)
    print("\n".join(lines) or Severity.OK.name)


def _lives(store: Path, now: float) -> bool:
    """Whether a process runs the node in some run, and each writes its status and has the broker: no hung one does."""
    found = [status for status in _read([store, *store.glob("runs/*")])[0].values() if status["process"] is not None]
    return bool(found) and all(one.get("connected") and now - one.get("written", 0.0) <= SILENCE for one in found)


def _read(stores: Sequence[Path]) -> tuple[dict[str, dict[str, Any]], dict[str, CallerError]]:
    """Statuses by state folder, and why there are none of others."""
    from gossamer.deployment.party.state_folder import StateFolder

    found, unread = {}, {}
    for store in stores:
        try:
            found[str(store)] = StateFolder(store).status()
        except CallerError as error:
            unread[str(store)] = error
    return found, unread


def _name(store: str, found: dict[str, dict[str, Any]]) -> str:
    return str(found[store].get("node", store))


def _row(status: dict[str, Any], name: str) -> tuple[str, ...]:
    broker = "connected" if status.get("connected") else status.get("broker_says") or "not connected"
    finished = status.get("finished") or "-"
    around = (broker, peers_up(status)) if status["process"] is not None else ("-", "-")
    return (name, status["state"], *progress(status), finished, *around)


def progress(status: Mapping[str, Any]) -> tuple[str, str]:
    """Updates and releases, in words."""
    planned = status.get("planned_releases")
    releases = f"{status.get('releases', 0)}{'' if planned is None else f' of {planned}'}"
    return str(status.get("updates", "-")), releases


def peers_up(status: Mapping[str, Any]) -> str:
    """Number of peers that are up, in words."""
    peers = status.get("peers", {}).values()
    return f"{sum(peer['state'] == 'up' for peer in peers)} of {len(peers)} up"


def say_dropped(whose: str, dropped: Mapping[str, int]) -> None:
    """A line on what was dropped of a peer, if anything was."""
    if dropped:
        say(f"{whose}: {', '.join(f'{count} {reason}' for reason, count in dropped.items())}")


def identity_command(options: argparse.Namespace) -> int:
    """Make a key."""
    from gossamer.deployment.founding.layout import make_identity

    folder = options.out or Path(options.name)
    identity, public = make_identity(options.name, folder)
    if options.json:
        key = identity.public_key
        print_json({"name": options.name, "key": str(key), "fingerprint": key.fingerprint, "public_file": str(public)})
        return 0
    print(f"{options.name}'s fingerprint: {identity.public_key.fingerprint}")
    say(
        f"Send {public} to the organiser, and compare the fingerprint by another way, such as the telephone.\n"
        f"The private key stays in {folder}; put what the organiser sends into the same folder."
    )
    return 0


def node_command(options: argparse.Namespace) -> int:
    """Run the node."""
    if options.invitation is None:
        raise CallerError("the following arguments are required: --invitation; see gossamer node --help")
    # It needs what is optional, so it is imported only here.
    from gossamer.deployment.founding.layout import place_of
    from gossamer.deployment.party.agreement import PartyOptions
    from gossamer.deployment.party.party import run_party

    chosen = {name: value for name, value in vars(options).items() if name in PartyOptions.__dataclass_fields__}
    chosen |= {"modules": options.module, "quiet": options.quiet or options.log_file == STDERR}
    if options.app is not None:
        from gossamer.flower.app import FlowerApp

        chosen["trainer"] = partial(FlowerApp.of_party, options.app, options.python or sys.executable, options.timeout)
    if len(options.run or ()) > 1 and options.trace is not None:
        raise CallerError("--trace is of one run; leave it out, or name one by --run")
    for run in options.run or ():  # before the first takes part, which may be for days
        place_of(run)
    ended: list[str] = []
    with logged(options), door_for(options) as door:
        for run in (runs := options.run or [None]):  # one after the other
            party = PartyOptions(**chosen | {"run": run})
            if run != runs[-1] and (end := _end(party)):
                say(f"run {run} is over for this party")
                ended.append(end)
            elif "stopped" not in ended:
                ended.append(run_party(party, partial(_shown, door, party.quiet)))
    return ENDED_SHORT if "short" in ended else 0


def _end(party: PartyOptions) -> str:
    """The end of a node's part in a run, as `run_party` says it; empty while others may need it, and can have it."""
    from gossamer.deployment.party.state_folder import StateFolder
    from gossamer.keys.invitations import read_signed

    folder = StateFolder(party.state)
    try:
        said = folder.status()
    except CallerError:
        return ""
    peers = said.get("peers", {}).items()
    needed = [name for name, peer in peers if peer["state"] == "up" and not peer["finished"]]
    if said["state"] != "finished":
        return ""
    if needed and not folder.leaving:
        if read_signed(party.file).expires > datetime.now(UTC):
            return ""
        say(f"{party.file} has expired; {', '.join(needed)} may need this party there yet: have the organiser renew it")
    return "short" if said.get("why") else "finished"


def pack_command(options: argparse.Namespace) -> int:
    """Copy a party's objects into a bundle."""
    from gossamer.runtimes.object_store.bundle import pack

    found = pack(*_carried(options), options.out)
    lines = [f"{count} for {to}" for to, count in sorted(found.items())] or ["nothing to carry"]
    return answered(options, dict(found), f"{options.out}: {', '.join(lines)}")


def take_command(options: argparse.Namespace) -> int:
    """Put a bundle's objects into a party's folder."""
    from gossamer.runtimes.object_store.bundle import take

    found = take(*_carried(options), options.bundle)
    return answered(options, found, f"{options.bundle}: {', '.join(f'{n} {what}' for what, n in found.items())}")


def _carried(options: argparse.Namespace) -> tuple[Path, str, str]:
    """A party's own folder, its run, and its name."""
    from gossamer.keys.invitations import read_signed

    invitation = read_signed(options.invitation)
    scheme, _, place = (options.broker or invitation.broker).partition("?")[0].partition("://")
    if scheme != "file" or not Path(place).is_dir():
        raise CallerError(f"expected a folder such as file:///srv/run, found {scheme}://{place}; name it by --broker")
    return Path(place), invitation.run, invitation.invited


def backup_command(options: argparse.Namespace) -> int:
    """Copy a node's state."""
    from gossamer.deployment.party.store import back_up

    back_up(options.state, options.out)
    print(
        f"{options.out}: the state of the node, to go on from there; delete one of the two before the node is started"
    )
    return 0


@contextmanager
def _shown(door: Door | None, quiet: bool, folder: StateFolder) -> Iterator[None]:
    """Serve the node's page while it runs, if there is a door for it."""
    try:
        with live(door, [folder.path], partial(_tell, quiet, folder)):
            yield
    finally:
        folder.remove(_ADDRESS)


def _tell(quiet: bool, folder: StateFolder, address: str) -> None:
    """Say where the page is, to the node's owner alone.

    Whoever knows the whole address sees the page, and what a service says is gathered, as in the journal of systemd,
    for others to read. So it is on a terminal and in a file of the owner's, and a log is told of the file.
    """
    folder.write(_ADDRESS, f"{address}\n")
    folder.say(f"its report is shown to a browser on this machine; the address is in {folder.path / _ADDRESS}")
    if sys.stderr.isatty() and not quiet:
        tell(address)


_ADDRESS = "live-address"


# ``gossamer stop``.


def stop_command(options: argparse.Namespace) -> int:
    """End the node's process."""
    from gossamer.deployment.party.state_folder import StateFolder

    StateFolder(options.store).stop(options.leave, options.timeout)
    say(f"{options.store}: ended")
    return 0


# ``gossamer up``: a whole federation on one machine.


def up_command(options: argparse.Namespace) -> int:
    """Run the federation, and say what came of it."""
    experiment = read_experiment(options)
    # It needs what is optional, so it is imported only here.
    from gossamer.cli.federation.local_federation import up

    out = options.out or default_folder(options.spec, "up", experiment.seed, settings_of(options))
    with logged(options, out.name), door_for(options) as door:
        return up(options, experiment, out, door)
