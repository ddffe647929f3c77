"""Scripts of what nodes ask of data sides, and the transcript of what comes of them: two data sides are compared by it.

An operation is one of

    ("admit", key, node, task)      ("amend", key, task)      ("compute", keys)      ("restart", node)

and an operation whose ticket there is none of, since it was refused, is left out. A transcript has the label, type,
bytes and count of every answer, or the type and the words of every error, and what was charged after each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gossamer.errors import GossamerError
from gossamer.privacy.exact.secret_randomness import SecretRandomness
from gossamer.sides import masked_side

Script = list[tuple[Any, ...]]


class Runner:
    """What a script is run on.

    Parameters
    ----------
    computer : Computer
        Data sides.
    lines : callable
        What their ledgers say.
    restart : callable, optional
        (computer, node) -> data sides in which the process of ``node`` is another one.
    """

    def __init__(
        self,
        computer: Any,
        lines: Callable[[], list[dict[str, Any]]],
        restart: Callable[[Any, str], Any] | None = None,
    ) -> None:
        self.computer, self.lines, self._restart = computer, lines, restart
        self.tickets: dict[Any, tuple[str, Any]] = {}

    def run(self, script: Iterable[tuple[Any, ...]], nodes: Iterable[str]) -> list[Any]:
        """The transcript of ``script``."""
        nodes = list(nodes)
        found: list[Any] = []
        for operation in script:
            try:
                found.append(self._do(*operation))
            except GossamerError as error:
                found.append((type(error).__name__, words(error)))
            found.append([self.computer.releases(node) for node in nodes])
            found.append(self.lines())
        return found

    def _do(self, what: str, *rest: Any) -> Any:
        if what == "admit":
            key, node, task = rest
            self.tickets.pop(key, None)
            self.tickets[key] = node, self.computer.admit(node, task)
            return "admitted"
        if what == "amend":
            key, task = rest
            if key not in self.tickets:
                return None
            node, ticket = self.tickets[key]
            self.tickets[key] = node, self.computer.amended(ticket, task)
            return "amended"
        if what == "compute":
            there = [self.tickets[key][1] for key in rest[0] if key in self.tickets]
            return [seen(answer) for answer in self.computer.compute(there)]
        assert what == "restart"
        assert self._restart is not None
        (node,) = rest
        self.computer = self._restart(self.computer, node)
        self.tickets = {key: held for key, held in self.tickets.items() if held[0] != node}
        return "restarted"


def seen(answer: Any) -> tuple[Any, ...]:
    """All that an answer is."""
    vector = answer.released
    return type(vector).__name__, str(vector.values.dtype), vector.values.tobytes(), int(answer.not_finite)


def words(error: GossamerError) -> str:
    """What an error says; of an answer that is asked for again, that alone, since it says of what in two ways."""
    text = str(error)
    return "answered once" if "is answered once" in text else text


@contextmanager
def known_randomness() -> Iterator[None]:
    """Numbers of the operating system that are the same in each of these contexts, in the order of their use."""
    drawn = 0

    def expand(self: Any, count: int) -> bytes:
        nonlocal drawn
        drawn += 1
        return hashlib.shake_256(f"call {drawn}".encode()).digest(count)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SecretRandomness, "bytes", expand)
        patch.setattr(masked_side.secrets, "token_bytes", lambda size: expand(None, size))
        yield
