"""``gossamer federation status`` and ``stop``: how all parties are, in one table, the worst first, and their end."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import Any

from gossamer.cli.federation.node import peers_up, print_problems, progress, say_dropped, worst_of
from gossamer.cli.printing import say, table
from gossamer.deployment.founding.founding import give_order
from gossamer.deployment.overview.watch import Statuses, Watch
from gossamer.deployment.party.health import Severity, write_metrics
from gossamer.deployment.party.state_folder import ENDED
from gossamer.files import to_json
from gossamer.keys.identity import Identity
from gossamer.keys.orders import STOP, STOPPED

_EVERY = 5.0  # seconds between two tables, where one is watched


def status_command(options: argparse.Namespace) -> int:
    """Show how the parties are; the worst of them gives the exit code."""
    watch = Watch(options.dir, say, options.wait)
    with watch.transport:
        watch.look(options.wait, watch.all_heard)
        while True:
            code = _shown(options, watch.statuses())
            if not options.watch:
                return code
            watch.look(_EVERY)


def stop_command(options: argparse.Namespace) -> int:
    """Ask all parties to end, and show what they do; exit code 1 where one does not, or is not heard."""
    give_order(options.dir, STOP, None if options.organiser is None else Identity.load(options.organiser))
    watch = Watch(options.dir, say, options.wait)
    with watch.transport:
        watch.look(options.wait, lambda: watch.all_answered(STOP))
        found = watch.statuses()
    _shown(argparse.Namespace(json=options.json, watch=False, prometheus=None), found)
    going = [name for name, one in found.items() if one["state"] not in ENDED]
    if going:
        say(
            f"{', '.join(going)} did not end, or were not heard. Others tell whom they reach, and so does "
            f"`gossamer federation status {options.dir} --watch`."
        )
    return 1 if going else 0


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
    now, ordered = time.time(), sorted(found.values(), key=lambda status: -Severity[status["level"].upper()])
    head = ("party", "level", "state", "since", "version", "updates", "releases", "peers", "heard")
    print(table([head, *(_row(status, now) for status in ordered)]), flush=True)
    for status in ordered:
        say_dropped(f"dropped of {status['node']}", status["dropped"])
    return code


def _row(status: Mapping[str, Any], now: float) -> tuple[str, ...]:
    ordered = status.get("finished") == STOPPED and status["state"] == "finished"
    who = status["node"], status["level"], STOPPED if ordered else status["state"]
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
