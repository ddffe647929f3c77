"""Receipts of a deployed party, in the file of its ledger: a charge and its receipt are one transaction.

So there is never a charge without its receipt, nor a receipt without its charge, whenever the process is killed, and no
line is ever torn. Row 0 of a chain has the lines of the plan, and row n that of its nth release. Who has countersigned
how many is written with the next receipt, and at the end; of each witness the most that it ever signed stays.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

from gossamer.protocol.witnesses import Seen, following
from gossamer.runtimes.storage.file import File, WrongStore
from gossamer.sides.ledger import Receipt
from gossamer.sides.plan import SidePlan
from gossamer.sides.receipts import Book, Head, link


def _nonce() -> str:
    return secrets.token_hex(8)


class Countersigned(NamedTuple):
    """Countersignature that a party holds: of each witness the largest, whatever that has now.

    Attributes
    ----------
    witness : str
        Peer who has signed.
    releases : int
        Number of receipts it has seen.
    head : str
        State after them, in hexadecimal digits.
    signature : str
        Signature in hexadecimal digits.
    noted : str
        Time when it was written down, by this machine's clock.
    """

    witness: str
    releases: int
    head: str
    signature: str
    noted: str


class Witnessed(NamedTuple):
    """Receipts of a party in a run, and its witnesses.

    Attributes
    ----------
    run : str
        Run and party, with a stroke between.
    receipts : int
        Number of them.
    countersigned : list of Countersigned
        Signatures of witnesses.
    """

    run: str
    receipts: int
    countersigned: list[Countersigned]


class StoredReceipts:
    """The chain of one party in one run.

    Parameters
    ----------
    file : File
        File of the party's ledger.
    run, party : str
        Names.

    Attributes
    ----------
    heads : list of bytes
        State after each number of receipts, from 0 on; empty while there is no chain.
    links : list of bytes
        Link of each receipt.
    """

    def __init__(self, file: File, run: str, party: str) -> None:
        self._file, self._run, self._party = file, run, party
        self._chain = f"{run}/{party}"
        self._book: Book | None = None
        self._countersigned: dict[str, tuple[Seen, bytes]] = {}  # and not written down yet
        self._fresh = ""  # lines of the receipt whose transaction is open
        self.heads: list[bytes] = []
        self.links: list[bytes] = []
        for lines in self.rows():
            self._follow(lines)

    def rows(self) -> list[str]:
        """Lines of the plan, and of each receipt."""
        found = self._file.rows("SELECT lines FROM receipt WHERE chain = ? ORDER BY number", self._chain)
        return [lines for (lines,) in found]

    def begin(self, plans: Mapping[str, SidePlan], key: str | None, nonce: Callable[[], str] = _nonce) -> None:
        """Have receipts of what is charged from now on, after those that are there.

        Parameters
        ----------
        plans : mapping of str to SidePlan
            Plan of the party, and of its held-out examples, by the name in receipts.
        key : str or None
            The party's public key, in hexadecimal digits; None for one that signs nothing.
        nonce : callable, optional
            Draws the random digits of a receipt.
        """
        self._book = Book(plans, self._run, timed=False, key=key, nonce=nonce)
        if not self.heads:
            with self._file.transaction():
                self._write(self._book.written())
            self._follow(self._fresh)
        else:
            told = Counter(json.loads(lines.splitlines()[-1])["of"] for lines in self.rows()[1:])
            self._book.go_on(self.heads[-1], self._laws(), told)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Charge and `add` inside: both last, or neither."""
        self._fresh = ""
        with self._file.transaction():
            yield
        if self._fresh:
            self._follow(self._fresh)

    def add(self, name: str, task: Any, receipt: Receipt) -> None:
        """Note what was charged; inside of `together`."""
        assert self._book is not None, "begin first"
        self._book.add(name, task, receipt)
        self._write(self._book.written())
        self._write_countersignatures()

    def ended(
        self, sign: Callable[[bytes], bytes] | None, card: str | None = None, evaluation: str | None = None
    ) -> tuple[str, Head, str | None]:
        """The whole chain with its last lines, its end, and the signature of the head in hexadecimal digits, if any."""
        assert self._book is not None, "begin first"
        with self._file.transaction():
            self._write_countersignatures()
        book = Book({}, self._run)
        book.go_on(self.heads[-1], [], {self._party: len(self.links)})
        last, head = book.ended(sign, card, evaluation)
        return "".join(self.rows()) + last, head, json.loads(last.splitlines()[-1]).get("signature")

    def witnessed(self, witness: str, seen: Seen, signature: bytes) -> None:
        """Take note of a countersignature; the largest is written down with the next receipt, or at the end."""
        before = self._countersigned.get(witness)
        if before is None or seen.releases > before[0].releases:
            self._countersigned[witness] = seen, signature

    def _write(self, lines: str) -> None:
        self._fresh, number = lines, len(self.heads)
        if self._file.rows("SELECT 1 FROM receipt WHERE chain = ? AND number = ?", self._chain, number):
            raise WrongStore(f"{self._file.path}: another process releases in {self._chain}, too; end one of the two")
        self._file.execute("INSERT INTO receipt VALUES (?, ?, ?)", self._chain, number, lines)

    def _write_countersignatures(self) -> None:
        noted = datetime.now(UTC).isoformat(timespec="seconds")
        while self._countersigned:
            witness, (seen, signature) = self._countersigned.popitem()
            self._file.execute(
                "INSERT INTO countersignature VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (chain, witness) DO UPDATE SET "
                "releases = excluded.releases, head = excluded.head, signature = excluded.signature, "
                "noted = excluded.noted WHERE excluded.releases > countersignature.releases",
                *(self._chain, witness, seen.releases, seen.head.hex(), signature.hex(), noted),
            )

    def _follow(self, lines: str) -> None:
        """Take in lines that are stored: those of the plan, or a receipt."""
        state, links = self.heads[-1] if self.heads else bytes(32), []
        for line in lines.splitlines(keepends=True):
            links.append(link(line))
            state = following(state, links[-1])
        if self.heads:
            self.links += links  # first: who reads meanwhile goes by the number of heads
        self.heads.append(state)

    def _laws(self) -> list[str]:
        laws = [json.loads(line).get("law") for line in self.rows()[0].splitlines()]
        return [json.dumps(law, allow_nan=False) for law in laws if isinstance(law, dict)]


def noted_in(file: File) -> dict[str, int]:
    """Return the number of charges that there are receipts of, by chain: of sums for several owners, one for each."""
    found: dict[str, int] = {}
    owners: list[str] | None = None
    for chain, number, lines in file.rows("SELECT chain, number, lines FROM receipt ORDER BY chain, number"):
        if number == 0:
            said = (json.loads(line).get("owners") for line in lines.splitlines())
            owners, found[chain] = next((one for one in said if one is not None), None), 0
        else:
            found[chain] += 1 if owners is None else len(json.loads(lines.splitlines()[-1]).get("owners", owners))
    return found


def witnessed_in(file: File, chain: str) -> Witnessed | None:
    """Return how many receipts a chain has, and who has countersigned how many; None if there is no such chain."""
    ((rows,),) = file.rows("SELECT count(*) FROM receipt WHERE chain = ?", chain)
    signed = file.rows(
        "SELECT witness, releases, head, signature, noted FROM countersignature WHERE chain = ? ORDER BY witness", chain
    )
    return Witnessed(chain, rows - 1, [Countersigned(*row) for row in signed]) if rows else None
