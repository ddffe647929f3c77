"""Orders: what the organiser of a run says to all of its parties while it goes on, in one signed line each.

An order stays true for good, so that it changes nothing when it comes again, whoever passes it on and however often. Of
pauses and their ends, which are numbered, the one with the highest number is true.
Whether the data's owner lets one count is for each party to say (`Orders.ends`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gossamer.errors import CallerError, MalformedMessage, failing_as
from gossamer.files import read_file, write_own
from gossamer.keys.identity import SIGNATURE_BYTES, Identity, PublicKey
from gossamer.protocol import encoding

FILE = "orders"
"""Name of the file in which orders are kept, in the organiser's folder and in a node's."""
STOP, REMOVE = "stop", "remove "
"""The end of the run; and before a name: take nothing of this party any longer."""
PAUSE, RESUME = "pause", "resume"
"""Before a number: take no part in the run until it is resumed under a higher one."""
PAUSED = "paused by the organiser"
STOPPED, REMOVED = "stopped by the organiser", "removed by the organiser"
_PURPOSE, _LARGEST = "order", 1 << 16
_WHAT = r"(stop|remove [A-Za-z0-9._-]{1,64}|(?:pause|resume) [1-9][0-9]{0,8})"
_TEXT = re.compile(rf"([0-9a-f]{{32}}) {_WHAT} ([0-9T:+-]{{1,40}})")


@encoding.register("peer.order")
@dataclass(frozen=True, slots=True)
class Order:
    """An order, whose signature is still to be checked.

    Attributes
    ----------
    text : str
        The run, what all are to do, and when that was signed.
    signature : bytes
        The organiser's, 64 bytes.
    """

    text: str
    signature: bytes

    def __post_init__(self) -> None:
        if type(self.text) is not str or not _TEXT.fullmatch(self.text):
            raise ValueError("expected a run, an order and a time")
        if type(self.signature) is not bytes or len(self.signature) != SIGNATURE_BYTES:
            raise ValueError(f"expected a signature of {SIGNATURE_BYTES} bytes")

    @classmethod
    def signed(cls, organiser: Identity, run: str, what: str) -> Order:
        """An order that is given now."""
        text = f"{run} {what} {datetime.now(UTC).isoformat(timespec='seconds')}"
        return cls(text, organiser.sign(_PURPOSE, text.encode()))

    @property
    def what(self) -> str:
        """The order alone."""
        return self.text.split(" ", 1)[1].rsplit(" ", 1)[0]


def _number(what: str) -> tuple[int, str]:
    """Number of a pause, or of its end, and which of the two it is; 0 of other orders."""
    word, _, number = what.partition(" ")
    return (int(number), word) if word in (PAUSE, RESUME) else (0, "")


def paused(said: Mapping[str, str]) -> bool:
    """Whether a party waits, by the orders that it knows, each with why it does not follow it, if it does not."""
    newest = max(said, key=_number, default="")
    return newest.startswith(PAUSE) and not said[newest]


def newer(what: str, known: Iterable[str]) -> str:
    """Return the pause, or the end of one, that is ``known`` and makes ``what`` past; empty if there is none."""
    found = [one for one in known if re.fullmatch(_WHAT, one) and _number(one) > _number(what)]
    return max(found, key=_number, default="") if what.startswith((PAUSE, RESUME)) else ""


class Orders:
    """Orders to a run that one of its parties knows, or that its organiser has given.

    Parameters
    ----------
    path : Path
        File that they are kept in.
    run : str
        The run's random name.
    organiser : PublicKey
        The key of who may give them.
    me : str, optional
        The party; none of who watches, and goes on hearing those that were removed.
    may_stop : bool, optional
        Whether the owner of the party's data lets the organiser end the node; None of a party without data, which
        ends with those whom it serves.
    say : callable
        Takes a line on an order that is new.

    Attributes
    ----------
    known : dict of str to Order
        Orders by what they say.
    said : dict of str to str
        The same, with why one is not followed here; empty where it is.

    Raises
    ------
    CallerError
        If the file is not what was written.
    """

    def __init__(
        self,
        path: Path,
        run: str,
        organiser: PublicKey,
        me: str = "",
        may_stop: bool | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._path, self._run, self._organiser, self._say = path, run, organiser, say
        self._me, self._may_stop = me, may_stop
        self.known: dict[str, Order] = {}
        self.said: dict[str, str] = {}
        self.look()

    def look(self) -> None:
        """Take note of orders in the file, which another command may have given since.

        Raises
        ------
        CallerError
            If it is not what was written.
        """
        for order in self._read():
            if order.what not in self.known and not self._unfit(order):  # another run may have had the folder before
                self._note(order)

    def take(self, order: Order) -> str:
        """Keep an order, on disk; why not, if it is none of this organiser to this run."""
        past = (0, "") < _number(order.what) <= self.newest
        if not (why := self._unfit(order)) and order.what not in self.known and not past:
            self._note(order)
            write_own(self._path, encoding.encode(list(self.known.values())), durable=True)
            unless = f", and this node does not: {self.said[order.what]}" if self.said[order.what] else ""
            self._say(f"the organiser asks all parties: {order.text.partition(' ')[2]}{unless}")
        return why

    def ends(self, begun: bool = True) -> str:
        """Reason for the party to end its part in the run, which has ``begun`` or not; empty while there is none."""
        if REMOVE + self._me in self.known:
            return REMOVED
        allowed = not begun if self._may_stop is None else self._may_stop
        return STOPPED if STOP in self.known and allowed else ""

    @property
    def newest(self) -> tuple[int, str]:
        """The highest number of a pause or its end, and which of the two that is; of one number it is the end."""
        return max(map(_number, self.known), default=(0, ""))

    def pauses(self) -> str:
        """Reason for the party to wait until the run is resumed; empty while there is none."""
        return PAUSED if paused(self.said) else ""

    @property
    def removed(self) -> list[str]:
        """Names of the parties that the organiser has removed."""
        return [what.removeprefix(REMOVE) for what in self.known if what.startswith(REMOVE)]

    def removes(self, name: str) -> bool:
        """Whether the party takes nothing of the one of that name any longer."""
        return bool(self._me) and REMOVE + name in self.known

    def _note(self, order: Order) -> None:
        for what in [what for what in self.known if 0 < _number(what)[0] < _number(order.what)[0]]:
            del self.known[what], self.said[what]
        refused = order.what.startswith((STOP, PAUSE)) and self._may_stop is False
        self.known[order.what], self.said[order.what] = order, "its policy does not allow that" if refused else ""

    def _unfit(self, order: Order) -> str:
        if not order.text.startswith(self._run):
            return "an order to another run"
        signed = self._organiser.signed(order.signature, _PURPOSE, order.text.encode())
        return "" if signed else "an order that the organiser has not signed"

    def _read(self) -> list[Order]:
        if not self._path.exists():
            return []
        with failing_as(CallerError, f"{self._path}: cannot read the organiser's orders: "):
            content = read_file(self._path, _LARGEST)
        try:
            found = encoding.decode(content)
        except MalformedMessage:
            found = None
        if not isinstance(found, list) or not all(isinstance(one, Order) for one in found):
            raise CallerError(
                f"{self._path}: expected the organiser's orders, found something else; delete the file, and have the "
                "organiser give them again"
            )
        return found
