"""Data that the ledger knows under another name: what the owner is told, and what may be said to that."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gossamer.deployment.owner.policy import OwnerPolicy
from gossamer.errors import DataError, SpecError
from gossamer.runtimes.storage.ledger import LedgerFile
from gossamer.runtimes.storage.names import KnownElsewhere, rename


def update_command(policy: OwnerPolicy, name: str, path: Path | None) -> str:
    """The command that accepts a data set as it is."""
    where = "" if path is None else f" --data {shlex.quote(str(path))}"
    return f"gossamer data update {shlex.quote(str(policy.path))}{where} --name {shlex.quote(name)}"


@contextmanager
def told_of_names(name: str, command: str) -> Iterator[None]:
    """Content of data set ``name`` that is known under others, in one line that says what to do.

    Raises
    ------
    DataError
        Instead of `KnownElsewhere`.
    """
    try:
        yield
    except KnownElsewhere as found:
        raise DataError(_line(found, name, command)) from None


def _line(found: KnownElsewhere, name: str, command: str) -> str:
    shared = found.shared.items()
    known = [f"{count:,} of its {found.examples:,} examples are known as {other!r}" for other, count in shared]
    if found.forgotten:
        listed = ", ".join(map(repr, found.forgotten))
        known.append(f"it may be {listed}, whose hashes were forgotten with their key")
    if found.begun:
        return (
            f"data set {name!r}: {' and '.join(known)}, and another name is no fresh budget; {command} --adds-up "
            "accepts it, if it is no mistake: for examples in common what both names spend adds up"
        )
    old = next(iter((*found.shared, *found.forgotten)))
    return (
        f"data set {name!r}: {' and '.join(known)}, and a new name is no fresh budget; {command} "
        f"--renamed-from {shlex.quote(old)} takes over what was spent, if it is the same data (with {old!r} no longer "
        "in the policy), and --adds-up in its place accepts other data: for examples in common what both names spend "
        "adds up"
    )


def take_over(policy: OwnerPolicy, file: LedgerFile, old: str, new: str) -> None:
    """Keep under ``new`` what the ledger keeps under ``old``.

    Raises
    ------
    SpecError
        If the policy still has the old name, or the ledger does not know it, or knows the new one.
    """
    if old in policy.data:
        raise SpecError(
            f"{policy.place(('data', old))}: data that were renamed have one name; take {old!r} out of the policy"
        )
    rename(file.contents.file, old, new)
