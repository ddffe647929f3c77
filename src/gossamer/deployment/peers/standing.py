"""Behaviour of a peer: what of it was dropped, whether it is in quarantine, and how much time it may still cost.

Whether its receipts are believed is noted too: what contradicts those that were seen is an offence, and what is only
late is doubted once nothing else has come for a while.

Three counters with a limit, and no more for any peer, whatever it sends:

- **offences**, what only the peer itself can have done. So many of them are a quarantine, each twice as long as the one
  before. One offence is forgiven every so often; a peer without any begins anew.
- **handshakes**, which cost time before anything is known to be authentic: a bucket of so many, refilled steadily.
- **lines in the log**: the first of each kind at once, and then at growing intervals, with the number left out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from gossamer.errors import SpecError

_LONGEST_LINE = 300
_FIRST_SILENCE = 60.0
_LONGEST_SILENCE = 86_400.0
_LATE = 30.0  # most seconds for which all that comes may be late by the network's fault


@dataclass(frozen=True)
class Limits:
    """Limits of what is tolerated from each peer.

    Attributes
    ----------
    quarantine_after : int
        Offences that lead to quarantine.
    forgive_after : float
        Seconds after which one is forgiven.
    quarantine_for, longest_quarantine : float
        Seconds of the first quarantine, and of the longest.
    handshakes : int
        Most at once.
    handshakes_per_second : float
        Most in the long run.
    """

    quarantine_after: int = 20
    forgive_after: float = 60.0
    quarantine_for: float = 60.0
    longest_quarantine: float = 86_400.0
    handshakes: int = 20
    handshakes_per_second: float = 5.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value < math.inf:
                raise SpecError(f"peers need {name} above 0 and finite, found {value!r}")
        if self.handshakes < 1:
            raise SpecError(f"peers need handshakes of 1 or more, found {self.handshakes!r}")
        if self.longest_quarantine < self.quarantine_for:
            raise SpecError(
                f"peers need longest_quarantine of quarantine_for, {self.quarantine_for:g} s, or more, "
                f"found {self.longest_quarantine!r}"
            )


@dataclass
class Standing:
    """One peer's record. Times are in seconds on the node's clock.

    Attributes
    ----------
    limits : Limits
        What is put up with.
    dropped : Counter of str
        Datagrams and messages, by reason.
    until : float
        End of the newest quarantine.
    disbelieved : str
        Why nothing of it is taken, by its receipts; empty while they are believed.
    """

    limits: Limits
    dropped: Counter[str] = field(default_factory=Counter)
    until: float = -math.inf
    disbelieved: str = ""
    _late_since: float = math.inf
    _offences: float = 0.0
    _forgiven_at: float = -math.inf
    _quarantines: int = 0
    _handshakes: float = 0.0  # used up
    _refilled_at: float = -math.inf

    def quarantined(self, now: float) -> bool:
        """Whether nothing of the peer is looked at."""
        return now < self.until

    def offend(self, now: float) -> float | None:
        """Take note of an offence; the seconds of quarantine, if one begins."""
        if self.quarantined(now):
            return None  # of a datagram that was opened before
        limits = self.limits
        self._offences = max(0.0, self._offences - max(0.0, now - self._forgiven_at) / limits.forgive_after)
        if self._offences == 0:
            self._quarantines = 0
        self._offences, self._forgiven_at = self._offences + 1, now
        if self._offences < limits.quarantine_after:
            return None
        seconds = min(limits.quarantine_for * 2.0 ** min(self._quarantines, 60), limits.longest_quarantine)
        self._quarantines += 1
        # It comes back on probation: the next offence is the last.
        self.until = self._forgiven_at = now + seconds
        self._offences = limits.quarantine_after - 1.0
        return seconds

    def disbelieve(self, why: str, now: float, *, offence: bool) -> None:
        """Something was dropped for its receipts, and nothing was taken since then."""
        self._late_since = min(self._late_since, now)
        if offence or now >= self._late_since + _LATE:
            self.disbelieved = why

    def believe(self) -> None:
        """Something that may hold a release was taken."""
        self.disbelieved, self._late_since = "", math.inf

    def admits_handshake(self, now: float) -> bool:
        """Whether there is time for one more; it counts, if so."""
        limits = self.limits
        refilled = max(0.0, now - self._refilled_at) * limits.handshakes_per_second
        self._handshakes, self._refilled_at = max(0.0, self._handshakes - refilled), now
        if self._handshakes + 1 > limits.handshakes:
            return False
        self._handshakes += 1
        return True


@dataclass
class _Topic:
    wait: float
    until: float
    left_out: int = 0


class SparseLog:
    """A log that nobody can fill: lines about one topic come at growing intervals.

    Parameters
    ----------
    say : callable
        Takes a line.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self._topics: dict[tuple[str, str], _Topic] = {}

    def __call__(self, topic: tuple[str, str], line: str, now: float) -> None:
        """Say ``line``, unless there was one about ``topic`` not long ago. Topics must be limited in number."""
        known = self._topics.get(topic)
        if known is not None and now < known.until:
            known.left_out += 1
            return
        since = f" ({known.left_out} more since the last such line)" if known is not None and known.left_out else ""
        wait = _FIRST_SILENCE if known is None else min(2 * known.wait, _LONGEST_SILENCE)
        self._topics[topic] = _Topic(wait, now + wait)
        self.say(printable(line) + since)


def printable(text: str, most: int = _LONGEST_LINE) -> str:
    """``text`` on one line of at most ``most`` characters, whatever a peer has put into it."""
    cut = text if len(text) <= most else text[: most - 3] + "..."
    return "".join(letter if letter.isprintable() else "?" for letter in cut)
