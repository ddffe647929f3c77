"""A bad input: how it comes about, what is called with it, and what must be said."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

Make = Callable[[Path], None]
"""Makes what a case needs in an empty folder."""

RUN = """
dataset: digits
algorithm: {name: gossip, nodes: 3, batch_size: 20, updates_per_node: 3}
privacy: none
"""
"""The spec of a run that takes no time."""


FOUND = "federation new f --nodes a,b,c --broker mqtt://localhost --insecure --examples a=99,b=99,c=99"
"""A command that founds a federation, with a spec."""


def _nothing(folder: Path) -> None:
    return None


@dataclass(frozen=True)
class Case:
    """A bad input.

    Attributes
    ----------
    id : str
        Its name, different from all others.
    kind : str
        As in the table of kinds.
    command : str
        Of ``gossamer``, as a shell reads it; called in a folder of its own.
    says : str
        A part of the one line that is said.
    files : mapping of str to str or bytes
        What lies in the folder.
    make : callable
        Makes what is no plain file.
    of : str
        What is copied to the folder first: ``results`` of a run, or a ``federation``.
    leaves : str
        A folder in which it may leave something, such as the log of a node that says that it failed.
    code : int
        The exit code: 2 for a mistake, 3 where a ledger refuses, 130 after an interrupt, 0 if it is accepted.
    why : str
        Why it is accepted.
    apart : bool
        Whether it has a process of its own, with bounds of memory and processor time, because it could take all of
        either, or wait for ever, if it went wrong.
    """

    id: str
    kind: str
    command: str
    says: str = ""
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    make: Make = _nothing
    of: str = ""
    leaves: str = ""
    code: int = 2
    why: str = ""
    apart: bool = False

    @property
    def arguments(self) -> list[str]:
        """Arguments of the command."""
        return shlex.split(self.command)

    def prepare(self, folder: Path) -> None:
        """Make what it needs."""
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        self.make(folder)


def checked(kind: str, id: str, content: str | bytes, says: str, **more: object) -> Case:
    """A spec that ``gossamer check`` is called with."""
    return Case(id, kind, "check spec.yaml", says, {"spec.yaml": content}, **more)  # type: ignore[arg-type]


def accepted(case: Case, why: str) -> Case:
    """The same input, which is taken, and why that is right."""
    return replace(case, code=0, why=why)
