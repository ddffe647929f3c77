"""Actions of ``gossamer federation``: keys, invitations and a broker's papers are made, and what they say is said."""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from gossamer.cli.commands import run_flag
from gossamer.cli.printing import (
    answered,
    below,
    epsilon,
    guarantees,
    node_table,
    print_json,
    say,
    table,
    warn,
    wrapped,
)
from gossamer.data.datasets import declared, unscaled
from gossamer.deployment.founding import layout as papers
from gossamer.deployment.founding.federation_spec import left_out, own_code, start_of
from gossamer.deployment.founding.founding import (
    Founded,
    SharedBroker,
    draft,
    draft_again,
    draft_run,
    join,
    papers_of,
    share,
)
from gossamer.deployment.founding.layout import has_tls
from gossamer.deployment.party.agreement import Agreed, check_newer
from gossamer.deployment.party.data_side import deployed_epsilon, deployed_guarantees
from gossamer.errors import CallerError, counted, failing_as
from gossamer.experiment.specs.spec_file import read_text
from gossamer.extras import installed_wheel
from gossamer.files import read_file, real_path, words_beside
from gossamer.files import read_text as text_of
from gossamer.keys.identity import Identity
from gossamer.keys.invitations import Invitation, Member, read_signed

_WORDS = words_beside(__file__)
_LARGEST_WHEEL = 1 << 28
"""Most bytes of a wheel."""


def new_command(options: argparse.Namespace) -> int:
    """Found a federation."""
    papers.check_empty(options.dir)
    issuing, spec = _issuing(options), _spec_text(options.spec)
    beside = real_path(options.spec).parent
    wheel = None if options.wheel is None else read_file(options.wheel, _LARGEST_WHEEL)
    terms = {"broker": options.broker, "insecure": options.insecure, "wheel": wheel}
    founded = draft(spec=spec, beside=beside, **terms, **issuing)
    experiment = read_text(spec)
    warn([*left_out(experiment), *unscaled(experiment.dataset, declared(experiment.dataset).format)])
    start = start_of(experiment, beside)
    return _write(options, founded, _agreed(founded.invitation, None if start is None else start.path))


def add_command(options: argparse.Namespace) -> int:
    """Let parties in."""
    again = draft_again(options.dir, **_issuing(options))  # which says so where nothing was founded
    before = read_signed(options.dir / papers.RECORD)
    earlier, agreed = (_agreed(invitation, options.dir / papers.START) for invitation in (before, again.invitation))
    check_newer(earlier, agreed, earlier.names)
    return _write(options, again, agreed, options.node)


def renew_command(options: argparse.Namespace) -> int:
    """Issue everything again."""
    again = draft_again(options.dir, {}, run=options.run, **_signing(options))
    start = options.dir / papers.place_of(options.run) / papers.START
    return _write(options, again, _agreed(again.invitation, start), (), options.run)


def run_command(options: argparse.Namespace) -> int:
    """Write the papers of a further run."""
    spec, beside = _spec_text(options.spec), real_path(options.spec).parent
    taking_part = {"nodes": options.nodes, "examples": options.examples or {}}
    name, founded = draft_run(options.dir, spec, name=options.run, beside=beside, **taking_part, **_signing(options))
    start = start_of(read_text(spec), beside)
    return _write(options, founded, _agreed(founded.invitation, None if start is None else start.path), None, name)


def show_command(options: argparse.Namespace) -> int:
    """Say what an invitation says."""
    invitation = read_signed(options.file, options.organiser)
    beside = real_path(options.file).parent / papers.START
    agreed = _agreed(invitation, options.pretrained or beside, options.module)
    if options.json:
        print_json({"invited": invitation.invited, **document(agreed), "spec": invitation.spec})
        return 0
    print(f"For {invitation.me.name} ({invitation.me.role}). {describe(agreed)}")
    print(f"\nIts spec:\n\n{invitation.spec}", end="")
    if options.organiser is None:
        say(f"Ask the organiser by another way whether the fingerprint is {invitation.organiser.fingerprint}.")
    return 0


def _write(
    options: argparse.Namespace,
    founded: Founded,
    agreed: Agreed,
    joining: Sequence[str] | None = None,
    run: str | None = None,
) -> int:
    """Write it, if what it says can be run, and say what it says."""
    founded.write(options.dir)
    named = {} if run is None else {"name": run}
    said = {"folder": str(options.dir), **named, **document(agreed), "private_keys_made_for": list(founded.made)}
    answered(options, said, f"{describe(agreed)}\n")
    say(next_steps(options.dir, founded, joining, run))
    return 0


def _agreed(invitation: Invitation, start: Path | None, modules: Sequence[str] | None = None) -> Agreed:
    """Derive what all parties will: an error now rather than at each of them.

    An organiser's own spec may have the code run that it names.
    """
    allowed = own_code(read_text(invitation.spec)) if modules is None else modules
    return Agreed.by(invitation, allowed, start)


def _parties(options: argparse.Namespace) -> dict[str, int]:
    flag, names = ("--node", options.node) if "node" in options else ("--nodes", options.nodes)
    examples = options.examples or {}
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise CallerError(f"{flag}: {twice[0]} is named twice")
    if unknown := [name for name in examples if name not in names]:
        raise CallerError(f"--examples: {unknown[0]} is none of the nodes {', '.join(names)}")
    if missing := [name for name in names if name not in examples]:
        raise CallerError(
            f"--examples: how many training examples {', '.join(missing)} will use is missing; all parties must know "
            f"it, because noise is planned with it; say --examples {missing[0]}=N"
        )
    return {name: examples[name] for name in names}


def _signing(options: argparse.Namespace) -> dict[str, Any]:
    """Say for how long papers are good, and by whom they are signed."""
    organiser = None if options.organiser is None else Identity.load(options.organiser)
    return {"valid": timedelta(days=options.expires), "organiser": organiser}


def _issuing(options: argparse.Namespace) -> dict[str, Any]:
    """The parties that get invitations, the keys that they have sent, and what is signed."""
    parties, keys = _parties(options), {} if options.keys is None else papers.read_keys(options.keys)
    return {"parties": parties, "keys": keys, **_signing(options)}


def _spec_text(path: Path) -> str:
    with failing_as(CallerError, f"{path}: cannot read the spec: "):
        return text_of(path)


def describe(agreed: Agreed) -> str:
    """An invitation, and what the run will release, in words."""
    spec, plan, invitation = agreed.prepared.experiment, agreed.plan, agreed.invitation
    rows = [_row(_entry(member, agreed)) for member in invitation.members]
    served = papers.is_served(invitation.broker)
    return (
        f"Run {invitation.run}\n"
        f"  what       {spec.algorithm.name} on {spec.dataset.name}, "
        f"{counted(agreed.prepared.objective.size, 'parameter')}\n"
        f"  broker     {invitation.broker}{'' if has_tls(invitation.broker) or not served else ' (no TLS)'}\n"
        f"  valid      {invitation.issued:%Y-%m-%d} to {invitation.expires:%Y-%m-%d %H:%M} UTC\n"
        f"  organiser  {invitation.organiser.fingerprint}\n"
        f"{_wheel(invitation.wheel_sha256)}"
        f"  plan       {plan}\n\n"
        f"{node_table(('party', 'role', 'examples', 'releases', 'epsilon planned', 'fingerprint'), rows)}"
        f"{below(plan.words)}\n\n"
        f"{guarantees(*deployed_guarantees(agreed.prepared, plan))}"
    )


def _wheel(wanted: str | None) -> str:
    """The file that everybody installs, and whether this installation is from it."""
    if wanted is None:
        return ""
    here = installed_wheel()
    known = f"not this installation's, which is {here}" if here else "this installation is from no such file"
    return f"  wheel      sha256 {wanted} ({'as installed here' if here == wanted else known})\n"


def _row(entry: Mapping[str, Any]) -> tuple[str, ...]:
    role = entry["role"] if entry["unit"] is None else f"{entry['role']} of {entry['unit']}"
    releases = ("", "", "")
    if entry["examples"] is not None:
        releases = str(entry["examples"]), str(entry["releases"]), epsilon(entry["epsilon"])
    return entry["name"], role, *releases, entry["fingerprint"]


def document(agreed: Agreed) -> dict[str, Any]:
    """The same as data."""
    invitation = agreed.invitation
    guarantee, by_observer = deployed_guarantees(agreed.prepared, agreed.plan)
    others = {observer: found.as_dict() for observer, found in by_observer.items()}
    return {
        "run": invitation.run,
        "algorithm": agreed.prepared.experiment.algorithm.name,
        "dataset": agreed.prepared.experiment.dataset.name,
        "parameters": agreed.prepared.objective.size,
        "broker": invitation.broker,
        "issued": invitation.issued.isoformat(),
        "expires": invitation.expires.isoformat(),
        "organiser": invitation.organiser.fingerprint,
        **({} if invitation.wheel_sha256 is None else {"wheel_sha256": invitation.wheel_sha256}),
        "members": [_entry(member, agreed) for member in invitation.members],
        "guarantee": guarantee.as_dict(),
        **({"guarantees": others} if others else {}),
    }


def _entry(member: Member, agreed: Agreed) -> dict[str, Any]:
    entry = {
        "name": member.name,
        "role": member.role,
        "unit": member.unit,
        "examples": member.examples,
        "fingerprint": member.key.fingerprint,
    }
    if member.examples is None:
        return entry
    proved = deployed_epsilon(agreed.prepared, agreed.plan, member.name)
    releases = agreed.plan.releases[member.name]
    return {**entry, "releases": releases, "epsilon": proved if math.isfinite(proved) else None}


def next_steps(folder: Path, founded: Founded, joining: Sequence[str] | None = None, run: str | None = None) -> str:
    """Next steps of the organiser with the folder; ``joining`` are those who come to a federation that there is."""
    place = papers.place_of(run)
    invitation, tls = founded.invitation, has_tls(founded.invitation.broker)
    again, new, first = joining is not None, joining is None or len(joining) > 0, run is None
    names = [member.name for member in invitation.members]
    kept = [name for name in names if (folder / name / papers.IDENTITY).exists()]  # not handed over yet
    keys = ", ".join(name for name in (papers.ORGANISER_KEY, papers.AUTHORITY_KEY) if (folder / name).exists())
    who, broker = " and ".join(joining or ()) or "every party", folder / papers.BROKER
    changed = ", ".join(sorted(Path(place).name for place in founded.files if place.startswith(f"{papers.BROKER}/")))
    there = [name for name in names if name not in kept]
    due = {
        "fingerprint": new and first,
        "broker": first and not again and tls,
        "open broker": first and not (again or tls) and papers.is_served(invitation.broker),
        "store": not (again or papers.is_served(invitation.broker)),
        "changed": (again or not first) and changed,
        "made": kept,
        "others": there and first,
        "further": not first,
        "start": new and (folder / place / papers.START).exists(),
        "again": again,
        "nodes": not again,
        "joining": again and new,
        "watched": not again,
        "keys": keys,
    }
    facts = {"founded": founded, "papers": papers, "who": who, "broker": broker, "changed": changed, "keys": keys}
    facts |= {"folder": folder, "made": ", ".join(kept), "others": ", ".join(there)}
    facts |= {"place": place, "run": run_flag(run), "name": run}
    facts["first"] = _WORDS["first"].format(papers=papers) if tls else ""
    return _listed("Next:", "steps", due, facts)


def _listed(before: str, what: str, due: Mapping[str, object], facts: Mapping[str, object]) -> str:
    """Those steps of ``actions.yaml`` that are due, below what stands before them."""
    steps = [_WORDS[what][name].format(**facts) for name, is_due in due.items() if is_due]
    return "\n".join([before, *(wrapped(f"  - {step}") for step in steps)])


# One broker for several federations.


def broker_command(options: argparse.Namespace) -> int:
    """Write a shared broker's papers."""
    if (options.out is None) == (options.join is None):
        raise CallerError("expected one of --out, for a new broker, and --join, for one that is there")
    if options.join is not None and options.place is not None:
        raise CallerError("--place is for a new broker; change the paths in its mosquitto.conf to move one")
    if options.place is not None and not options.place.is_absolute():
        raise CallerError(f"--place: expected an absolute path, found {options.place}")
    folder: Path = options.out or options.join
    made = share(options.dir, folder, options.place) if options.join is None else join(options.dir, folder)
    made.write(folder)
    served = _document(folder, made)
    rows = [(one["run"], str(len(one["parties"])), one["papers"] or "as before") for one in served]
    text = table([("run", "parties", "certificates"), *rows])
    answered(options, {"folder": str(folder), "federations": served}, text)
    say(_next_steps(options, folder, made))
    return 0


def _document(folder: Path, made: SharedBroker) -> list[dict[str, Any]]:

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
    due = {"join": options.join is not None, "issued": made.issued, "keep": True}
    facts = {"acl": broker / "acl", "key": folder / "authority.key"}
    first = f"\n  - {start}" if options.join is None else ""  # a command to copy is not wrapped
    return _listed(f"Next:{first}", "shared", due, facts)
