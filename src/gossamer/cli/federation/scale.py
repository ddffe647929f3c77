"""``gossamer federation scale`` and ``combine``: a scale that parties find together, before they start."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gossamer.cli.option_values import FileName
from gossamer.cli.printing import print_json, say, table


def add_scale(actions: Any) -> argparse.ArgumentParser:
    """Add the party's command to those of ``gossamer federation``."""
    releasing: argparse.ArgumentParser = actions.add_parser(
        "scale",
        help="make this party's release for a scale that is found privately",
        description="Make a party's release for dataset.scale: private, once, with noise. The whole run is charged to "
        "the data's budget first.",
    )
    add = releasing.add_argument
    add("invitation", action=FileName, metavar="INVITATION", help="the invitation; its folder holds the key")
    add("--policy", action=FileName, metavar="FILE", required=True, help="what the data's owner allows")
    add("--organiser", metavar="FINGERPRINT", help="the organiser's fingerprint (default: those in the policy)")
    add("--identity", action=FileName, metavar="FILE", help="the private key (default: identity.key there)")
    add("--data", action=FileName, metavar="PATH", help="the training examples (default: as in the policy)")
    add("--data-name", metavar="NAME", help="what the policy calls the data, if it knows several")
    add("--module", dest="modules", action="append", default=[], metavar="REFERENCE", help="model code to allow")
    add("--pretrained", action=FileName, metavar="FILE", help="the model that all start from, if there is one")
    add("--store", action=FileName, metavar="DIR", help="the state folder (default: state beside the invitation)")
    return releasing


def scale_command(options: argparse.Namespace) -> int:
    """Release, and say where it is."""
    from gossamer.deployment.party.options import PartyOptions
    from gossamer.deployment.party.scaling import release_scale

    chosen = {name: value for name, value in vars(options).items() if name in PartyOptions.__dataclass_fields__}
    path = release_scale(PartyOptions(**chosen))
    if options.json:
        print_json({"release": str(path)})
    else:
        print(path)
    say(f"Send {path} to the organiser: it holds no secret. Keep it; asked again, this command finds it.")
    return 0


def add_combine(actions: Any) -> argparse.ArgumentParser:
    """Add the organiser's command to those of ``gossamer federation``."""
    combining: argparse.ArgumentParser = actions.add_parser(
        "combine",
        help="put the parties' releases for a scale together",
        description="Check each party's release for dataset.scale: private, and write the scale that all start with.",
    )
    add = combining.add_argument
    add("folder", action=FileName, metavar="DIR", help="the folder that `new` made")
    add("releases", action=FileName, nargs="+", metavar="FILE", help="a party's release, from each party with data")
    add("--organiser", action=FileName, metavar="KEYFILE", help="the organiser's key (default: organiser.key in DIR)")
    return combining


def combine_command(options: argparse.Namespace) -> int:
    """Write the scale, and say what it is."""
    from gossamer.deployment.founding.federation_spec import own_code
    from gossamer.deployment.founding.invitations import read_signed
    from gossamer.deployment.founding.layout import ORGANISER_KEY, RECORD, SCALE, START, write
    from gossamer.deployment.founding.scale_papers import content_of
    from gossamer.deployment.party.agreement import Agreed, Terms
    from gossamer.deployment.party.scaling import combined
    from gossamer.experiment.reading import read_text
    from gossamer.keys.identity import Identity

    folder: Path = options.folder
    invitation = read_signed(folder / RECORD)
    # The organiser wrote the spec, so its code is the organiser's own.
    agreed = Agreed.on(Terms.of(invitation, own_code(read_text(invitation.spec)), folder / START))
    contents = {str(path): content_of(path, "a party's release for the scale") for path in options.releases}
    text, ranges = combined(agreed, contents, Identity.load(options.organiser or folder / ORGANISER_KEY))
    write(folder, {SCALE: text.encode()})
    if options.json:
        print_json({"scale": str(folder / SCALE), "ranges": ranges})
    else:
        print(table([("column", "range"), *((name, f"-{most:g} to {most:g}") for name, most in ranges.items())]))
    say(f"{folder / SCALE} goes to every party, beside its invitation: all start with it.")
    return 0
