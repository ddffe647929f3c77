"""``gossamer federation``: keys, invitations and the broker's configuration, before anything runs."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from gossamer.cli.commands import CommandParser, FileName, Listed, add_commands

_DAYS = 90


def federation_options(command: CommandParser) -> None:
    """Found a federation between organisations, and let parties in."""
    add_commands(command, "actions", "ACTION", _ACTIONS)


_ACTIONS = {
    name: Listed("federation.federation", name, line)
    for name, line in (
        ("identity", "make this party's own key, on its own machine"),
        ("new", "write an invitation for each party, and the broker's configuration"),
        ("add", "let another party into a running federation"),
        ("renew", "write everything again before it expires"),
        ("show", "say what an invitation says"),
        ("broker", "have one broker serve several federations"),
    )
}


def _finish(command: argparse.ArgumentParser, action: str) -> None:
    command.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    command.set_defaults(command=run_action, action=action)


def run_action(options: argparse.Namespace) -> int:
    """Do what is asked; what that needs is optional, so it is imported only here."""
    code: int = getattr(import_module("gossamer.cli.federation.actions"), f"{options.action}_command")(options)
    return code


def identity_options(making: argparse.ArgumentParser) -> None:
    """Make a party's private key, which stays on this machine, and the public key for the organiser."""
    making.add_argument("name", metavar="NAME", help="the party")
    add_file(making, "--out", "FOLDER", "where to keep it (default: a new folder NAME)")
    _finish(making, "identity")


def new_options(founding: argparse.ArgumentParser) -> None:
    """Found a federation: write an invitation for each party, and the broker's configuration."""
    add_file(founding, "folder", "DIR", "a new folder for all of it")
    founding.add_argument("--spec", action=FileName, required=True, metavar="SPEC", help="the experiment, a YAML file")
    founding.add_argument("--nodes", type=_names, required=True, metavar="A,B", help="the parties with data")
    founding.add_argument("--broker", required=True, metavar="URL", help="such as mqtts://broker.example.org:8883")
    add_file(founding, "--wheel", "FILE", "the wheel that all install; its hash goes into the invitations")
    founding.add_argument("--insecure", action="store_true", help="accept mqtt:// to another machine, without TLS")
    _add_issuing(founding)
    _finish(founding, "new")


def add_options(joining: argparse.ArgumentParser) -> None:
    """Write new invitations to the same run for everybody, with parties that join."""
    add_file(joining, "folder", "DIR", "the folder that `new` made")
    joining.add_argument("--nodes", "--node", type=_names, required=True, metavar="D", dest="nodes", help="who joins")
    _add_issuing(joining)
    _finish(joining, "add")


def renew_options(renewing: argparse.ArgumentParser) -> None:
    """Write new invitations and certificates for the same parties. Keys stay what they were."""
    add_file(renewing, "folder", "DIR", "the folder that `new` made")
    _add_signing(renewing)
    _finish(renewing, "renew")


def show_options(showing: argparse.ArgumentParser) -> None:
    """Check an invitation's signature and say what it says, and what the run would release."""
    add_file(showing, "file", "FILE", "the invitation")
    showing.add_argument("--organiser", metavar="FINGERPRINT", help="whose signature it must have")
    add_allowed(showing)
    _finish(showing, "show")


def broker_options(sharing: argparse.ArgumentParser) -> None:
    """Write the configuration of one broker for several federations, and certificates for their parties."""
    sharing.add_argument(
        "folders", action=FileName, nargs="*", metavar="DIR", help="a folder that `new` made, or an invitation"
    )
    where = sharing.add_mutually_exclusive_group(required=True)
    add_file(where, "--out", "BROKER", "a new folder for all of it")
    add_file(where, "--join", "BROKER", "a broker's folder, to let federations in")
    add_file(sharing, "--place", "FOLDER", "where the broker's files will lie on its machine (default: BROKER/broker)")
    _finish(sharing, "broker")


def add_allowed(command: argparse.ArgumentParser) -> None:
    """Add what a party lets a spec have run, and start from."""
    command.add_argument(
        "--module", dest="modules", action="append", default=[], metavar="REFERENCE", help="model code to allow"
    )
    beside = "(default: start.safetensors beside the invitation)"
    add_file(command, "--pretrained", "FILE", f"the model that all start from, if there is one {beside}")


def _add_issuing(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--examples", type=_numbers, default={}, metavar="A=N,B=N", help="each one's training examples, which is public"
    )
    add_file(command, "--keys", "FOLDER", "public keys NAME.pub that parties have sent")
    _add_signing(command)


def _add_signing(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--expires", type=int, default=_DAYS, metavar="DAYS", help=f"for how long all is good (default: {_DAYS})"
    )
    add_file(command, "--organiser", "KEYFILE", "the organiser's key (default: organiser.key in DIR)")


def add_file(command: Any, name: str, metavar: str, line: str) -> None:
    """Add the name of a file or folder, with a line of help."""
    command.add_argument(name, action=FileName, metavar=metavar, help=line)


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"expected such as a,b, found {text!r}")
    return names


def _numbers(text: str) -> dict[str, int]:
    """``a=341,b=210``."""
    pairs = [entry.partition("=") for entry in text.split(",")]
    if any(not (equals and number.strip().isdecimal()) for _, equals, number in pairs):
        raise argparse.ArgumentTypeError(f"expected such as a=341,b=210, found {text!r}")
    names = [name.strip() for name, _, _ in pairs]
    if twice := first_twice(names):
        raise argparse.ArgumentTypeError(f"{twice} is named twice")
    return {name: int(number) for name, (_, _, number) in zip(names, pairs)}


def first_twice(names: Sequence[str]) -> str | None:
    """The first name that stands there twice, if one does."""
    return next((name for name, count in Counter(names).items() if count > 1), None)
