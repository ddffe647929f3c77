"""``gossamer federation status``, ``rehearse``, ``stop``, ``pause`` and others: how parties are, and what is asked."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from gossamer.cli.commands import run_flag
from gossamer.cli.federation.node import peers_up, print_problems, progress, say_dropped, worst_of
from gossamer.cli.logs import door_for
from gossamer.cli.printing import answered, say, table
from gossamer.deployment.founding import layout as papers
from gossamer.deployment.founding.runs import give_order
from gossamer.deployment.overview.watch import Statuses, Watch
from gossamer.deployment.party.health import Severity, write_metrics
from gossamer.deployment.party.state_folder import ENDED
from gossamer.files import to_json
from gossamer.keys.identity import Identity
from gossamer.keys.orders import PAUSE, REMOVE, REMOVED, RESUME, STOP, STOPPED, newer
from gossamer.protocol.transports import BrokerUnreachable

_EVERY = 5.0  # seconds between two tables, where one is watched


def status_command(options: argparse.Namespace) -> int:
    """Show how the parties are; the worst of them gives the exit code."""
    options.watch = options.watch or options.live is not None  # tables have their time, and documents a line
    watch = Watch(options.dir, say, options.wait, options.run, rejoin=30 if options.watch else 10)
    with door_for(options) as door, watch.transport, ExitStack() as stack:
        page = None
        if door is not None:
            from gossamer.report.serving import ShownParties, served_here

            page = ShownParties()
            stack.enter_context(served_here(page, door))
            say(f"the parties, for you alone, until Ctrl-C: {door.address}")
        watch.look(options.wait, watch.all_heard)
        while True:
            if options.watch and not watch.connected:
                say("no connection to the broker, which may have another who watches or orders: as all were heard last")
            code = _shown(options, found := watch.statuses())
            if page is not None:
                page.show(watch.invitation.run, found, _table(found))
            if not options.watch:
                return code
            watch.look(_EVERY)


def rehearse_command(options: argparse.Namespace) -> int:
    """Show which parties could begin; exit code 1 where one could not, or is off."""
    watch = Watch(options.dir, say, options.wait, options.run)
    with watch.transport:
        watch.look(options.wait, lambda: not any(_lacking(watch).values()))
        found = _lacking(watch)
    document = {name: {"ready": not lacks, "lacks": lacks} for name, lacks in found.items()}
    rows = [(name, "no" if lacks else "yes", "; ".join(lacks) or "-") for name, lacks in found.items()]
    return answered(options, document, table([("party", "ready", "what it lacks"), *rows]), int(any(found.values())))


def _lacking(watch: Watch) -> dict[str, list[str]]:
    """Return what parties lack, by name, but for those that were removed."""
    return {name: _lacks(one) for name, one in watch.statuses().items() if name not in watch.orders.removed}


def _lacks(status: Mapping[str, Any]) -> list[str]:
    """Return what a party lacks to begin: by its rehearsal, and as who watches sees it."""
    if status["state"] in ENDED:
        why = status.get("finished") or status.get("why")
        return [f"does not rehearse: it has {status['state']}{f': {why}' if why else '; start it with --rehearse'}"]
    if status["process"] is not None and "rehearsal" not in status:
        return [f"does not rehearse: it is {status['state']}; start it with --rehearse"]
    own = [text for text in status.get("rehearsal", {}).values() if text]
    return own + [one["text"] for one in status["problems"] if one["kind"] not in _REHEARSED]


_REHEARSED = ("process", "reach", "peers")
"""Kinds of problems of a node that has not begun, which its rehearsal says better."""


def stop_command(options: argparse.Namespace) -> int:
    """Ask all parties to end, and show what they do."""
    found, _ = _ordered(options, STOP)
    waits = [name for name, one in found.items() if one["state"] not in (*ENDED, "removed")]
    return _told(options, found, waits, "end")


def remove_command(options: argparse.Namespace) -> int:
    """Have all parties take nothing of one any longer, and show who knows that."""
    return _known(options, REMOVE + options.name)


def _known(options: argparse.Namespace, what: str) -> int:
    return _told(options, *_ordered(options, what), "say that they know it")


pause_command, resume_command = partial(_known, what=PAUSE), partial(_known, what=RESUME)
"""Ask all parties to wait until the run is resumed, or have those go on, and show who knows that."""


def _ordered(options: argparse.Namespace, what: str) -> tuple[Statuses, list[str]]:
    """Give an order, and show how the parties are then; also who has not answered."""
    organiser = None if options.organiser is None else Identity.load(options.organiser)
    what = give_order(options.dir, what, organiser, options.run)
    if what.startswith(REMOVE) and (acl := options.dir / papers.ACCESS).exists():
        say(f"{acl} goes to the broker's machine, and the broker reloads it (SIGHUP): connections go on.")
    watch = Watch(options.dir, say, options.wait, options.run)
    try:
        with watch.transport:
            watch.look(options.wait, lambda: not watch.waits_for(what))
            found, waits = watch.statuses(), watch.waits_for(what)
    except BrokerUnreachable as error:
        kept = f"the order is given, in {watch.folder / papers.ORDERS}, and told to nobody yet; give it again, or run"
        raise BrokerUnreachable(f"{error}; {kept} `{_status_of(options)}`, to tell it") from None
    _shown(argparse.Namespace(json=options.json, watch=False, prometheus=None), found)
    for name in waits:
        if later := newer(what, found[name].get("orders", ())):
            say(f"{name} goes by {later}, of another copy of {options.dir}: use that, or repeat this up to its number.")
    return found, waits


def _told(options: argparse.Namespace, found: Statuses, waits: Sequence[str], what: str) -> int:
    """Say who did not do what was asked; the exit code."""
    if waits:
        heard = any(one["process"] is not None for one in found.values())
        told = "Others tell whom they reach, and so does" if heard else "Unless it is over, who comes back is told by"
        say(f"{', '.join(waits)} did not {what} in time, if heard at all. {told} `{_status_of(options)} --watch`.")
    return 1 if waits else 0


def _status_of(options: argparse.Namespace) -> str:
    """Command that shows the run."""
    return f"gossamer federation status {options.dir}{run_flag(options.run)}"


def _shown(options: argparse.Namespace, found: Statuses) -> int:
    if options.prometheus is not None:
        write_metrics(options.prometheus, found)
    code = worst_of(found)
    if options.json:
        print(to_json(found, indent=None if options.watch else 2), flush=True)
        return code
    if options.watch:
        print(f"\n{time.strftime('%H:%M:%S')}")
    print_problems(found)
    rows = _table(found)
    print(table(rows), flush=True)
    for name, *_ in rows[1:]:
        say_dropped(f"dropped of {name}", found[name]["dropped"])
    return code


def _table(found: Statuses) -> list[tuple[str, ...]]:
    """Heads and a row for each party, the worst first."""
    now, ordered = time.time(), sorted(found.values(), key=lambda status: -Severity[status["level"].upper()])
    head = ("party", "level", "state", "since", "version", "updates", "releases", "peers", "heard")
    return [head, *(_row(status, now) for status in ordered)]


def _row(status: Mapping[str, Any], now: float) -> tuple[str, ...]:
    by_order = status["state"] == "finished" and status.get("finished") in (STOPPED, REMOVED)
    who = status["node"], status["level"], status["finished" if by_order else "state"]
    if "version" not in status:
        return (*who, *["-"] * 6)
    since = _ago(now - status["since"])
    return (*who, since, status["version"][:20], *progress(status), peers_up(status), _ago(status["heard"]))


def _ago(seconds: float) -> str:
    """A time that has passed, in the unit that says it in one or two digits."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
