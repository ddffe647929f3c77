"""``gossamer federation broker``: one broker for several federations."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.cli.option_values import FileName
from gossamer.cli.printing import print_json, say, table, wrapped
from gossamer.errors import CallerError

if TYPE_CHECKING:  # these need what is optional, so the command imports them when it runs
    from gossamer.deployment.founding.shared_broker import SharedBroker


def add_broker(actions: Any) -> argparse.ArgumentParser:
    """Add the command to those of ``gossamer federation``."""
    sharing: argparse.ArgumentParser = actions.add_parser(
        "broker",
        help="have one broker serve several federations",
        description="Write the configuration of one broker for several federations, and certificates for their "
        "parties.",
    )
    sharing.add_argument(
        "folders", action=FileName, nargs="*", metavar="DIR", help="a folder that `new` made, or an invitation"
    )
    where = sharing.add_mutually_exclusive_group(required=True)
    where.add_argument("--out", action=FileName, metavar="BROKER", help="a new folder for all of it")
    where.add_argument("--join", action=FileName, metavar="BROKER", help="a broker's folder, to let federations in")
    sharing.add_argument(
        "--place",
        action=FileName,
        metavar="FOLDER",
        help="where the broker's files will lie on its machine (default: BROKER/broker)",
    )
    return sharing


def broker_command(options: argparse.Namespace) -> int:
    """Write a shared broker's papers."""
    from gossamer.deployment.founding.shared_broker import join, share

    if options.join is not None and options.place is not None:
        raise CallerError("--place is for a new broker; change the paths in its mosquitto.conf to move one")
    if options.place is not None and not options.place.is_absolute():
        raise CallerError(f"--place: expected an absolute path, found {options.place}")
    folder: Path = options.out or options.join
    made = share(options.folders, folder, options.place) if options.join is None else join(options.folders, folder)
    made.write(folder)
    if options.json:
        print_json({"folder": str(folder), "federations": _document(folder, made)})
    else:
        rows = [(one["run"], str(len(one["parties"])), one["papers"] or "as before") for one in _document(folder, made)]
        print(table([("run", "parties", "certificates"), *rows]))
    say(_next_steps(options, folder, made))
    return 0


def _document(folder: Path, made: SharedBroker) -> list[dict[str, Any]]:
    from gossamer.deployment.founding.shared_broker import papers_of

    issued = {invitation.run for invitation in made.issued}
    return [
        {
            "run": one.run,
            "organiser": one.organiser.fingerprint,
            "broker": one.broker,
            "expires": one.expires.isoformat(),
            "parties": [member.name for member in one.members],
            "papers": str(folder / papers_of(one.run)) if one.run in issued else None,
        }
        for one in made.federations
    ]


def _next_steps(options: argparse.Namespace, folder: Path, made: SharedBroker) -> str:
    broker = folder / "broker"
    at = options.place or broker.absolute()
    start = (
        f"{broker} goes to the broker's machine as {at}, and holds its private key. There:\n"
        f"        mosquitto -c {at}/mosquitto.conf"
    )
    reload = f"{broker / 'acl'} goes to the broker, which reloads it (SIGHUP): connections go on."
    handing = (
        "Each party puts the ca.crt and tls.crt of its folder above in place of those that its federation came with. "
        "They hold no secret."
    )
    steps = [
        *([reload] if options.join is not None else []),
        *([handing] if made.issued else []),
        f"Keep {folder / 'authority.key'} where nobody else can read: --join needs it.",
    ]
    first = [f"  - {start}"] if options.join is None else []  # a command to copy is not wrapped
    return "\n".join(["Next:", *first, *(wrapped(f"  - {step}") for step in steps)])
