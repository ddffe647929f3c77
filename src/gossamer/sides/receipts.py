"""Receipts of releases, as a chain that strangers can check; what the charges of a run were, one by one.

Lines are JSON. State s_0 is 32 zero bytes, and s_(i+1) is the SHA-256 of s_i and of the SHA-256 of line i with its
newline, its *link*: who has a state and the links since then can follow the chain without any line. Every line has the
first 16 hexadecimal digits of the state before it, so whoever drops, doubles, alters or moves one breaks the chain
there. The last line has the whole state, the *head*, and the party's signature of it, if it has a key.

| line | what |
|---|---|
| the first | format, run, and the key that signs, if any |
| `law` | a law, by which releases are made; laws are numbered from 0 |
| `party` | how many releases of each law it may make, whom that protects and from whom: its plan, before the first |
| `of` | a release, once it is charged and before anything is drawn: whose, its number, query, law, clip and time |
| `guarantee` | SHA-256 of what `guarantee.json` says, and of a deployed party's `evaluation.json` |
| `head` | the end |

Parties with equal plans have one line, with a list of their names. Of a population that one loop computes, so have
parties that released alike since the run was looked at before: ``number`` is that of each one's first release,
``count`` how many each made, and the time is when the run was looked at again.

Times are those of the schedule: virtual, or public deadlines, and never when something was computed. Where a guarantee
holds only if the schedule is secret there are none. Receipts of a deployment have none either, and random digits
(`nonce`), so that no two releases have one receipt, and a link says nothing of its line. `gossamer.verify` reads all
this, and shares no code with it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from gossamer.protocol.snapshots import Kept
from gossamer.protocol.witnesses import following
from gossamer.sides.ledger import Kind, Receipt
from gossamer.sides.plan import SidePlan, StreamPlan

FILE = "receipts.jsonl"
FORMAT = 3
PURPOSE = "receipts"
"""Purpose of a party's signature of a head."""
_DIGITS = 16


class Head(NamedTuple):
    """End of a chain.

    Attributes
    ----------
    releases : int
        Number of releases that it has receipts of.
    head : str
        State after the last of them, in hexadecimal digits.
    """

    releases: int
    head: str


def link(line: str) -> bytes:
    """Digest by which a line goes into its chain."""
    return hashlib.sha256(line.encode()).digest()


class Chain(Kept):
    """Lines of a chain, each bound to all before it."""

    changing = ("state",)

    def __init__(self) -> None:
        self.state = bytes(32)

    def line(self, content: str) -> str:
        """The next line; ``content`` is a JSON object without its first brace."""
        text = f'{{"chain": "{self.state[: _DIGITS // 2].hex()}", {content}\n'
        self.state = following(self.state, link(text))
        return text

    def of(self, content: Mapping[str, Any]) -> str:
        """The next line."""
        return self.line(json.dumps(content, allow_nan=False)[1:])


class Noting(Protocol):
    """Notebook of data sides, for what they were charged."""

    def add(self, name: str, task: Any, receipt: Receipt) -> None:
        """Note what party ``name`` was charged for a ``task``."""


class Book(Noting, Kept):
    """Receipts of a run that are not written yet, and the chain of those that are.

    Parameters
    ----------
    plans : mapping of str to SidePlan
        Plans of the parties.
    run : str
        Identity that tells the run from others, in hexadecimal digits.
    timed : bool
        Whether times may be told.
    key : str, optional
        The public key, in hexadecimal digits, of the party whose receipts they are.
    nonce : callable, optional
        Draws hexadecimal digits that no two receipts have in common; by default receipts have none.

    Attributes
    ----------
    clock : callable
        Seconds since the start, by the schedule.
    late : callable
        Notes what is noted only when somebody looks.
    """

    changing = ("_chain", "_laws", "_numbers")

    def __init__(
        self,
        plans: Mapping[str, SidePlan],
        run: str,
        *,
        timed: bool = True,
        key: str | None = None,
        nonce: Callable[[], str] | None = None,
    ) -> None:
        self.clock: Callable[[], float] = lambda: 0.0
        self.late: Callable[[], None] = lambda: None
        self._plans, self._run, self._timed, self._key, self._nonce = plans, run, timed, key, nonce
        self._chain, self._laws, self._numbers = Chain(), dict[str, int](), dict[str, int]()
        self._begun = False
        self._new: list[Any] = []  # flat, five places a receipt: nothing for the collector of garbage to walk through
        self._quoted: dict[str, str] = {}
        self._newest: tuple[Any, Any, Any] = None, None, None  # what the newest line is of,
        self._words = ""  # and what it says of that

    def add(self, name: str, task: Any, receipt: Receipt) -> None:
        """Note what party ``name`` was charged for a ``task``."""
        self._new += (name, type(task), receipt, self.clock(), 1)

    def add_alike(self, names: list[str], count: int, query: type, receipt: Receipt) -> None:
        """Note as many charges of each of ``names``, who had as many before."""
        self._new += (names, query, receipt, self.clock(), count)

    def go_on(self, head: bytes, laws: list[str], numbers: Mapping[str, int]) -> None:
        """Go on after lines that are written: their end, their laws in order, and how many receipts each party has."""
        self._chain.state, self._numbers = head, dict(numbers)
        self._laws = {law: number for number, law in enumerate(laws)}
        self.after_restore()

    def before_snapshot(self) -> None:
        assert self._begun, "write the plans first"
        assert not self._new, "write what was added first"

    def after_restore(self) -> None:
        self._begun, self._new, self._newest = True, [], (None, None, None)

    def written(self, *, late: bool = True) -> str:
        """Lines of all that was added since they were asked for; first those of the plans.

        Whoever asks at a moment that the run does not decide asks without what is noted `late`, which goes into other
        lines then.
        """
        lines = [] if self._begun else list(self._plan_lines())
        if late:
            self.late()
        self._begun, new, self._new = True, self._new, []
        places = iter(new)
        for one in zip(places, places, places, places, places, strict=True):
            self._receipt_lines(lines, *one)
        return "".join(lines)

    def ended(
        self, sign: Callable[[bytes], bytes] | None = None, card: str | None = None, evaluation: str | None = None
    ) -> tuple[str, Head]:
        """The last lines, and the end; ``sign`` signs a head by the key, and the others are digests of files."""
        told = {} if evaluation is None else {"evaluation": evaluation}
        named = "" if card is None else self._chain.of({"guarantee": card, **told})
        state = self._chain.state
        found = Head(sum(self._numbers.values()), state.hex())
        signature = {} if sign is None else {"signature": sign(state).hex()}
        return named + self._chain.of({**found._asdict(), **signature}), found

    def _plan_lines(self) -> Iterator[str]:
        yield self._chain.of({"receipts": FORMAT, "run": self._run, "key": self._key})
        equal: dict[str, list[str]] = {}
        said: dict[int, str] = {}  # by identity: most of many parties share one plan
        for name, plan in self._plans.items():
            if (text := said.get(id(plan))) is None:
                yield from self._new_laws(plan)
                text = said[id(plan)] = self._said(plan)
            equal.setdefault(text, []).append(name)
        for text, names in equal.items():
            if text:
                yield self._chain.line(f'"party": {json.dumps(names if names[1:] else names[0])}, {text}')

    def _new_laws(self, plan: SidePlan) -> Iterator[str]:
        charges = plan.charges()
        for kind in (charges and charges.planned) or ():
            yield from self._law_lines(kind)

    def _said(self, plan: SidePlan) -> str:
        """Rest of the line of a party after its name; nothing of one that is never charged."""
        if (charges := plan.charges()) is None:
            return ""
        most = None if charges.planned is None else self._counts(charges.planned)
        moved = {"moved": plan.moved} if isinstance(plan, StreamPlan) else {}
        return json.dumps({**charges.party(), "most": most, **moved}, allow_nan=False)[1:]

    def _counts(self, planned: Mapping[Any, int]) -> dict[str, int]:
        """Counts by the number of the law; laws that are described alike are one."""
        found: dict[str, int] = {}
        for kind, count in planned.items():
            number = str(self._laws[_text(kind)])
            found[number] = found.get(number, 0) + count
        return found

    def _whose(self, party: str) -> tuple[str, ...]:
        charges = self._plans[party].charges()
        return () if charges is None else charges.owners

    def _law_lines(self, kind: Kind) -> Iterator[str]:
        if (text := _text(kind)) not in self._laws:
            self._laws[text] = len(self._laws)
            yield self._chain.line(f'"law": {text}}}')

    def _receipt_lines(
        self, lines: list[str], name: str | list[str], task: type, receipt: Receipt, time: float, count: int
    ) -> None:
        names = [name] if isinstance(name, str) else name
        first = names[0]
        number = self._numbers.get(first, 0) + 1
        for one in names:
            self._numbers[one] = number + count - 1
        kind, clip = receipt.kind, receipt.clip
        known = self._newest
        if task is not known[0] or kind is not known[1] or clip != known[2]:  # nearly always all are as before
            lines += self._law_lines(kind)
            limit = "null" if clip is None or clip == math.inf else repr(clip)
            self._words = f'"query": {json.dumps(task.__name__)}, "law": {self._laws[_text(kind)]}, "clip": {limit}'
            self._newest = task, kind, clip
        if len(names) > 1:
            of = json.dumps(names)
        elif (of := self._quoted.get(first, "")) == "":
            of = self._quoted[first] = json.dumps(first)
        some = receipt.owners and receipt.owners != self._whose(first)
        owners = f', "owners": {json.dumps(receipt.owners)}' if some else ""
        nonce = "" if self._nonce is None else f', "nonce": "{self._nonce()}"'
        when = repr(time) if self._timed else "null"
        many = "" if count == 1 else f', "count": {count}'
        lines.append(
            self._chain.line(f'"of": {of}, "number": {number}{many}, {self._words}, "time": {when}{owners}{nonce}}}')
        )


def _text(kind: Kind) -> str:
    return json.dumps(kind.describe(), allow_nan=False)
