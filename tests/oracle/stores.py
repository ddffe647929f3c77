"""Folders of parties as they were on disk in the middle of a run, and what today's code makes of them.

`make_stores` wrote them. They are opened as a party that starts again opens them: from the invitation follow the plan
and the nodes, from the journal the node, from the ledger what was charged.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.deployment.founding.invitations import parse_signed
from gossamer.deployment.owner.policy import read_policy
from gossamer.deployment.party.agreement import Agreed, Terms
from gossamer.deployment.party.data_side import DataHeld
from gossamer.deployment.party.joining import Invited
from gossamer.deployment.party.options import PartyOptions
from gossamer.deployment.party.renewing import open_host
from gossamer.deployment.party.state_folder import StateFolder
from gossamer.errors import RunWarning
from gossamer.keys.identity import Identity
from gossamer.protocol.encoding import name_of
from gossamer.runtimes.storage.ledger import LedgerFile
from gossamer.runtimes.storage.store import SqliteStore
from gossamer.vectors import Vector

FOLDER = Path(__file__).resolve().parent / "stores"
PARTIES = tuple(sorted(path.name.removesuffix(".tar.xz") for path in FOLDER.glob("party-*.tar.xz")))
LEDGERS = tuple(sorted(path.name.removesuffix(".tar.xz") for path in FOLDER.glob("ledger-*.tar.xz")))


@contextmanager
def unpacked(name: str) -> Iterator[Path]:
    """What was packed under a name, in a folder of this user's alone."""
    with tempfile.TemporaryDirectory(prefix="oracle-") as folder, tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
        # An argument of `extractall` is there since Python 3.11.4 only, this attribute does no harm before.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
        for path in Path(folder).rglob("*"):
            path.chmod(0o700 if path.is_dir() else 0o600)
        yield Path(folder).resolve()


def described(name: str) -> str:
    """What today's code finds in what was packed under a name, as text."""
    with unpacked(name) as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        lines = _party(folder) if name.startswith("party-") else _ledger(folder / "owner.ledger")
        return "\n".join(lines) + "\n"


# A party


def _party(folder: Path) -> Iterator[str]:
    content = (folder / "invitation.yaml").read_bytes()
    policy = folder / "policy.yaml" if (folder / "policy.yaml").exists() else None
    data = folder / "data.npz" if policy is not None else None
    agreed = Agreed.on(Terms.of(parse_signed(content)))
    identity = Identity.load(folder / "identity.key")
    invited = Invited(content, identity, agreed, None if policy is None else read_policy(policy), data)
    options = PartyOptions(invitation=folder / "invitation.yaml", data=data, policy=policy, quiet=True)
    state = StateFolder(folder / "state")
    state.take()
    try:
        yield from _node(invited, state)
        yield from _held(options, invited, state)
    finally:
        state.give_back()


def _node(invited: Invited, state: StateFolder) -> Iterator[str]:
    """The node as its store has it, and what it does when it resumes."""
    invitation = invited.agreed.terms.invitation
    with closing(SqliteStore(state.path / "store.sqlite", invitation.run, invitation.me.name)) as store:
        snapshot, entries = store.load()
        about = f"{'no' if snapshot is None else 'a'} snapshot, and {len(list(entries))} inputs after it"
        yield f"{invitation.me.name}, {invitation.me.role}: {about}"
        host = open_host(invited, state, store, None)
        yield from _lines("host", host.state())
        for outcome in host.start(host.now + 5.0):
            yield from _lines("resumes", outcome)


def _held(options: PartyOptions, invited: Invited, state: StateFolder) -> Iterator[str]:
    """What the data of the party have been charged, and what is guaranteed of them."""
    with closing(DataHeld(options, invited, state)) as held:
        held.charge()
        held.open()
        found = held.describe()
        for key in ("releases", "planned_releases", "ledger"):
            yield from _lines(key, found.get(key))
        yield f"guarantee: {'none' if found.get('epsilon') is None else 'proved'}"
        if held._kept is not None:
            yield f"mark: {held._kept.round}"
            yield from _lines("records", [(one.number, one.state, one.answer) for one in held._kept.kept()])


# A ledger


def _ledger(path: Path) -> Iterator[str]:
    with closing(LedgerFile(path)) as file:
        for name in file.data_sets:
            order, relation = file.filter_of(name) or (0.0, "no filter")
            yield f"{name}: {relation} at order {order:g}, spent {file.spent(name):.6g}"
            total = file.total(name)
            if total is not None:
                yield f"  squared mu {total.squared:.4g}, failures {total.failures:.4g}"
            for series, begun in file.series(name).items():
                yield f"  series {series.name}: {begun} runs begun"
            for run in file.runs(name):
                yield f"  {run.run}: {run.releases} releases, divergence {run.divergence:.6g}"
            for line in file.contents.history(name):
                yield f"  accepted {line.accepted}: {line.examples} examples, {line.added} added, {line.gone} gone"


# Text


def _lines(name: str, value: Any, depth: int = 0) -> Iterator[str]:
    """A value, with each number of a vector as it is."""
    start = f"{'  ' * depth}{name}"
    if isinstance(value, Vector):
        yield f"{start}: {type(value).__name__} {_numbers(value.values)}"
    elif isinstance(value, np.ndarray):
        yield f"{start}: {_numbers(value)}"
    elif is_dataclass(value):
        yield f"{start}: {_name(type(value))}"
        for item in fields(value):
            yield from _lines(item.name, getattr(value, item.name), depth + 1)
    elif isinstance(value, dict) and value:
        yield start
        for key, item in value.items():
            yield from _lines(repr(key), item, depth + 1)
    elif isinstance(value, list | tuple) and value:
        yield start
        for number, item in enumerate(value):
            yield from _lines(str(number), item, depth + 1)
    else:
        yield f"{start}: {value.hex() if isinstance(value, bytes) else repr(value)}"


def _numbers(values: Any) -> str:
    if values.dtype == np.uint8:
        return f"bytes {values.tobytes().hex()}"
    return f"{values.dtype.name} [{', '.join(map(str, values.tolist()))}]"


def _name(cls: type) -> str:
    """By which it is encoded, if it is; a class may get another one."""
    try:
        return name_of(cls)
    except KeyError:
        return "(not stored)"


if __name__ == "__main__":  # in a process of its own, which has imported what opening a store needs, and no more
    for one in sys.argv[1:]:
        sys.stdout.write(described(one))
