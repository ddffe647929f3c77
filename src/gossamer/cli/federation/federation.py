"""``gossamer federation``: keys, invitations and the broker's configuration, before anything runs."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.bounded import read_file, real_path
from gossamer.bounded import read_text as text_of
from gossamer.cli.commands import FileName
from gossamer.cli.printing import print_json, say, table, warn, wrapped
from gossamer.errors import CallerError

if TYPE_CHECKING:  # these need what is optional, so commands import them when they run
    from gossamer.deployment.founding.founding import Founded
    from gossamer.deployment.founding.invitations import Invitation
    from gossamer.deployment.founding.shared_broker import SharedBroker
    from gossamer.deployment.party.agreement import Agreed
    from gossamer.keys.identity import Identity, PublicKey


# ``gossamer federation broker``: one broker for several federations.


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


_DAYS = 90
_MOST_DAYS = 3650
_LARGEST_WHEEL = 1 << 28
"""Most bytes of a wheel."""


def federation_options(command: argparse.ArgumentParser) -> None:
    """Found a federation between organisations, and let parties in."""
    actions = command.add_subparsers(title="actions", metavar="ACTION", required=True)
    _add_identity(actions)
    _add_new(actions)
    _add_joining(actions)
    _add_renewing(actions)
    _add_show(actions)
    _finish(add_broker(actions), broker_command)


def _add_identity(actions: Any) -> None:
    making = actions.add_parser(
        "identity",
        help="make this party's own key, on its own machine",
        description="Make a party's private key, which stays on this machine, and the public key for the organiser.",
    )
    making.add_argument("name", metavar="NAME", help="the party")
    making.add_argument(
        "--out", action=FileName, metavar="FOLDER", help="where to keep it (default: a new folder NAME)"
    )
    _finish(making, identity_command)


def _add_new(actions: Any) -> None:
    founding = actions.add_parser(
        "new",
        help="write an invitation for each party, and the broker's configuration",
        description="Found a federation: write an invitation for each party, and the broker's configuration.",
    )
    founding.add_argument("folder", action=FileName, metavar="DIR", help="a new folder for all of it")
    founding.add_argument("--spec", action=FileName, required=True, metavar="SPEC", help="the experiment, a YAML file")
    founding.add_argument("--nodes", type=_names, required=True, metavar="A,B", help="the parties with data")
    founding.add_argument("--broker", required=True, metavar="URL", help="such as mqtts://broker.example.org:8883")
    founding.add_argument(
        "--wheel",
        action=FileName,
        metavar="FILE",
        help="the wheel that all install; its hash goes into the invitations",
    )
    founding.add_argument("--insecure", action="store_true", help="accept mqtt:// to another machine, without TLS")
    _add_issuing(founding)
    _finish(founding, new_command)


def _add_joining(actions: Any) -> None:
    joining = actions.add_parser(
        "add",
        help="let another party into a running federation",
        description="Write new invitations to the same run for everybody, with parties that join.",
    )
    joining.add_argument("folder", action=FileName, metavar="DIR", help="the folder that `new` made")
    joining.add_argument("--nodes", "--node", type=_names, required=True, metavar="D", dest="nodes", help="who joins")
    _add_issuing(joining)
    _finish(joining, add_command)


def _add_renewing(actions: Any) -> None:
    renewing = actions.add_parser(
        "renew",
        help="write everything again before it expires",
        description="Write new invitations and certificates for the same parties. Keys stay what they were.",
    )
    renewing.add_argument("folder", action=FileName, metavar="DIR", help="the folder that `new` made")
    _add_signing(renewing)
    _finish(renewing, renew_command)


def _add_show(actions: Any) -> None:
    showing = actions.add_parser(
        "show",
        help="say what an invitation says",
        description="Check an invitation's signature and say what it says, and what the run would release.",
    )
    showing.add_argument("file", action=FileName, metavar="FILE", help="the invitation")
    showing.add_argument("--organiser", metavar="FINGERPRINT", help="whose signature it must have")
    showing.add_argument(
        "--module", dest="modules", action="append", default=[], metavar="REFERENCE", help="model code to allow"
    )
    showing.add_argument(
        "--pretrained",
        action=FileName,
        metavar="FILE",
        help="the model that all start from, if there is one (default: start.safetensors beside the invitation)",
    )
    _finish(showing, show_command)


def _add_issuing(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--examples", type=_numbers, default={}, metavar="A=N,B=N", help="each one's training examples, which is public"
    )
    command.add_argument(
        "--keys", action=FileName, metavar="FOLDER", help="public keys NAME.pub that parties have sent"
    )
    _add_signing(command)


def _add_signing(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--expires", type=int, default=_DAYS, metavar="DAYS", help=f"for how long all is good (default: {_DAYS})"
    )
    command.add_argument(
        "--organiser", action=FileName, metavar="KEYFILE", help="the organiser's key (default: organiser.key in DIR)"
    )


def _finish(command: argparse.ArgumentParser, function: Any) -> None:
    command.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    command.set_defaults(command=function)


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
    if twice := _first_twice(names):
        raise argparse.ArgumentTypeError(f"{twice} is named twice")
    return {name: int(number) for name, (_, _, number) in zip(names, pairs)}


def _first_twice(names: Sequence[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


def identity_command(options: argparse.Namespace) -> int:
    """Make a key."""
    from gossamer.deployment.founding.roster import make_identity

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


def new_command(options: argparse.Namespace) -> int:
    """Found a federation."""
    from gossamer.data.datasets import declared, unscaled
    from gossamer.deployment.founding import layout as papers
    from gossamer.deployment.founding.federation_spec import left_out, start_of
    from gossamer.deployment.founding.founding import draft
    from gossamer.experiment.specs.reading import read_text

    papers.check_empty(options.folder)
    parties, keys, spec = _parties(options), _keys(options), _spec_text(options.spec)
    beside = real_path(options.spec).parent
    founded = draft(
        spec=spec,
        parties=parties,
        broker=options.broker,
        keys=keys,
        valid=_valid(options),
        organiser=_organiser(options),
        insecure=options.insecure,
        beside=beside,
        wheel=None if options.wheel is None else read_file(options.wheel, _LARGEST_WHEEL),
    )
    experiment = read_text(spec)
    warn([*left_out(experiment), *unscaled(experiment.dataset, declared(experiment.dataset).format)])
    start = start_of(experiment, beside)
    return _write(options, founded, _own(founded.invitation, None if start is None else start.path))


def add_command(options: argparse.Namespace) -> int:
    """Let parties in."""
    from gossamer.deployment.founding.founding import draft_again
    from gossamer.deployment.founding.invitations import read_signed
    from gossamer.deployment.founding.layout import RECORD, START
    from gossamer.deployment.party.stored import check_newer

    before = read_signed(options.folder / RECORD)
    again = draft_again(
        options.folder, _parties(options), keys=_keys(options), valid=_valid(options), organiser=_organiser(options)
    )
    earlier, agreed = (_own(invitation, options.folder / START) for invitation in (before, again.invitation))
    check_newer(earlier, agreed, earlier.terms.names)
    return _write(options, again, agreed)


def renew_command(options: argparse.Namespace) -> int:
    """Issue everything again."""
    from gossamer.deployment.founding.founding import draft_again
    from gossamer.deployment.founding.layout import START

    again = draft_again(options.folder, {}, valid=_valid(options), organiser=_organiser(options))
    return _write(options, again, _own(again.invitation, options.folder / START))


def show_command(options: argparse.Namespace) -> int:
    """Say what an invitation says."""
    from gossamer.cli.federation.output import describe, document
    from gossamer.deployment.founding.invitations import read_signed
    from gossamer.deployment.founding.layout import START

    invitation = read_signed(options.file, options.organiser)
    agreed = _agreed(invitation, options.modules, options.pretrained or real_path(options.file).parent / START)
    if options.json:
        print_json({"invited": invitation.invited, **document(invitation, agreed), "spec": invitation.spec})
        return 0
    print(f"For {invitation.me.name} ({invitation.me.role}). {describe(invitation, agreed)}")
    print(f"\nIts spec:\n\n{invitation.spec}", end="")
    if options.organiser is None:
        say(f"Ask the organiser by another way whether the fingerprint is {invitation.organiser.fingerprint}.")
    return 0


def _write(options: argparse.Namespace, founded: Founded, agreed: Agreed) -> int:
    """Write it, if what it says can be run, and say what it says."""
    from gossamer.cli.federation.output import describe, document, next_steps

    founded.write(options.folder)
    if options.json:
        print_json(
            {
                "folder": str(options.folder),
                **document(founded.invitation, agreed),
                "private_keys_made_for": list(founded.made),
            }
        )
    else:
        print(f"{describe(founded.invitation, agreed)}\n")
    say(next_steps(options.folder, founded, agreed))
    return 0


def _own(invitation: Invitation, start: Path | None) -> Agreed:
    """The same of an invitation by this organiser, whose spec's code is allowed, and who has the starting model."""
    from gossamer.deployment.founding.federation_spec import own_code
    from gossamer.experiment.specs.reading import read_text

    return _agreed(invitation, own_code(read_text(invitation.spec)), start)


def _agreed(invitation: Invitation, modules: Sequence[str], start: Path | None) -> Agreed:
    """Return what all parties will derive from it; an error now rather than at each of them."""
    from gossamer.deployment.party.agreement import Agreed, RunTerms

    return Agreed.on(RunTerms.of(invitation, modules, start))


def _parties(options: argparse.Namespace) -> dict[str, int]:
    names, examples = options.nodes, options.examples
    if twice := _first_twice(names):
        raise CallerError(f"--nodes: {twice} is named twice")
    if unknown := [name for name in examples if name not in names]:
        raise CallerError(f"--examples: {unknown[0]} is none of the nodes {', '.join(names)}")
    if missing := [name for name in names if name not in examples]:
        raise CallerError(
            f"--examples: how many training examples {', '.join(missing)} will use is missing; all parties must know "
            f"it, because noise is planned with it; say --examples {missing[0]}=N"
        )
    return {name: examples[name] for name in names}


def _keys(options: argparse.Namespace) -> dict[str, PublicKey]:
    from gossamer.deployment.founding.roster import read_keys

    return {} if options.keys is None else read_keys(options.keys)


def _organiser(options: argparse.Namespace) -> Identity | None:
    from gossamer.keys.identity import Identity

    return None if options.organiser is None else Identity.load(options.organiser)


def _valid(options: argparse.Namespace) -> timedelta:
    if not 1 <= options.expires <= _MOST_DAYS:
        raise CallerError(f"--expires must be from 1 to {_MOST_DAYS} days, found {options.expires}")
    return timedelta(days=options.expires)


def _spec_text(path: Path) -> str:
    try:
        return text_of(path)
    except OSError as error:
        raise CallerError(f"{path}: cannot read the spec: {error.strerror}") from None
