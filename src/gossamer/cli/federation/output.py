"""Output of ``gossamer federation``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from gossamer.cli.printing import below, epsilon, guarantees, node_table, wrapped
from gossamer.deployment.founding import layout as papers
from gossamer.deployment.founding.founding import Founded
from gossamer.deployment.founding.invitations import Invitation, Member
from gossamer.deployment.founding.layout import has_tls
from gossamer.deployment.party.agreement import Agreed
from gossamer.deployment.party.computing import deployed_epsilon, deployed_guarantees
from gossamer.errors import counted
from gossamer.extras import installed_wheel


def describe(invitation: Invitation, agreed: Agreed) -> str:
    """An invitation, and what the run will release, in words."""
    spec, plan = agreed.prepared.experiment, agreed.plan
    rows = [_row(member, agreed) for member in invitation.members]
    return (
        f"Run {invitation.run}\n"
        f"  what       {spec.algorithm.name} on {spec.dataset.name}, "
        f"{counted(agreed.prepared.objective.size, 'parameter')}\n"
        f"  broker     {invitation.broker}{'' if has_tls(invitation.broker) else ' (no TLS)'}\n"
        f"  valid      {invitation.issued:%Y-%m-%d} to {invitation.expires:%Y-%m-%d %H:%M} UTC\n"
        f"  organiser  {invitation.organiser.fingerprint}\n"
        f"{_wheel(invitation.wheel)}"
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


def _row(member: Member, agreed: Agreed) -> tuple[str, ...]:
    role = member.role if member.unit is None else f"{member.role} of {member.unit}"
    if member.examples is None:
        return (member.name, role, "", "", "", member.key.fingerprint)
    releases, spent = str(agreed.plan.releases[member.name]), epsilon(_epsilon(member, agreed))
    return (member.name, role, str(member.examples), releases, spent, member.key.fingerprint)


def _epsilon(member: Member, agreed: Agreed) -> float | None:
    """Epsilon proved for the data of a party; None where nothing is proved."""
    found = deployed_epsilon(agreed.prepared, agreed.plan, member.name)
    return found if math.isfinite(found) else None


def document(invitation: Invitation, agreed: Agreed) -> dict[str, Any]:
    """The same as data."""
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
        **({} if invitation.wheel is None else {"wheel_sha256": invitation.wheel}),
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
    return {**entry, "releases": agreed.plan.releases[member.name], "epsilon": _epsilon(member, agreed)}


def next_steps(folder: Path, founded: Founded, agreed: Agreed) -> str:
    """Next steps of the organiser with the folder."""
    invitation = founded.invitation
    names = [member.name for member in invitation.members]
    kept = [name for name in names if (folder / name / papers.IDENTITY).exists()]  # not handed over yet
    keys = ", ".join(name for name in (papers.ORGANISER_KEY, papers.AUTHORITY_KEY) if (folder / name).exists())
    steps = [
        f"The organiser's fingerprint is {founded.organiser.fingerprint}. Tell it to every party by another way than "
        "the invitations go, such as the telephone.",
        f"{folder / papers.BROKER} goes to the broker's machine, and holds its private key: there, in that folder, "
        "`mosquitto -c mosquitto.conf`."
        if has_tls(invitation.broker)
        else f"On the broker's machine: `mosquitto -c mosquitto.conf` in {folder / papers.BROKER}.",
        *_handing_over(folder, kept, [name for name in names if name not in kept]),
        *(
            [f"{papers.START} goes to every party, beside its invitation: all start from it, and refuse another file."]
            if (folder / papers.START).exists()
            else []
        ),
        "Each party: `gossamer node --invitation FILE --organiser FINGERPRINT --policy FILE --data FILE` "
        "(servers: without policy and data).",
        *([f"Keep {keys} here, where nobody else can read: `add` and `renew` need it."] if keys else []),
    ]
    return "Next:\n" + "\n".join(wrapped(f"  - {step}") for step in steps)


def _handing_over(folder: Path, made: list[str], others: list[str]) -> list[str]:
    steps = []
    if made:
        steps.append(
            f"The private keys of {', '.join(made)} were made here, in their folders under {folder}: hand these over "
            "safely, to nobody else, and delete the keys here. Who has one can act as that party."
        )
    if others:
        steps.append(
            f"The folders of {', '.join(others)} hold no secret, and may be mailed; each party puts the files beside "
            f"its own {papers.IDENTITY}."
        )
    return steps
