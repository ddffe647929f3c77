"""Times that a peer takes to answer, and how long to wait for it: learnt as TCP learns them, instead of fixed.

After a first time R: mean = R, deviation = R/2. After each further one:

    deviation <- 3/4 deviation + 1/4 |mean - R|,    mean <- 7/8 mean + 1/8 R;

and whoever waits for an answer waits for mean + 4 deviation, within bounds that the caller has.

References
----------
Paxson, Allman, Chu and Sargent, "Computing TCP's retransmission timer", RFC 6298, section 2; Jacobson and Karels,
"Congestion avoidance and control", SIGCOMM 1988. That what was sent twice tells no time: Karn and Partridge, "Improving
round-trip time estimates in reliable transport protocols", SIGCOMM 1987.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gossamer.protocol.encoding import register
from gossamer.protocol.link import Link

ALPHA, BETA, K = 1 / 8, 1 / 4, 4
"""The constants of RFC 6298."""
PATIENCE = 2
"""How many such waits a peer may be silent before it is given up."""
MOST_SILENCE = 10
"""How many times the silence that its settings have a peer may be silent in any case."""


@register("session.round_trips")
@dataclass(frozen=True, slots=True)
class RoundTrips:
    """Mean and deviation of a peer's times, in seconds; both None before the first."""

    mean: float | None = None
    deviation: float | None = None

    def after(self, seconds: float) -> RoundTrips:
        """The same after one more time."""
        if self.mean is None or self.deviation is None:
            return RoundTrips(seconds, seconds / 2)
        deviation = (1 - BETA) * self.deviation + BETA * abs(self.mean - seconds)
        return RoundTrips((1 - ALPHA) * self.mean + ALPHA * seconds, deviation)

    def wait(self, least: float, most: float) -> float:
        """Seconds to wait for an answer, within bounds; ``least`` before the first."""
        if self.mean is None or self.deviation is None:
            return least
        return min(max(self.mean + K * self.deviation, least), most)


@register("session.learning_link")
@dataclass(slots=True)
class LearningLink(Link):
    """A link that learns from its peer's times how long to wait.

    Attributes
    ----------
    trips : RoundTrips
        Of what was transmitted once: it tells when to transmit again.
    answers : RoundTrips
        From the first transmission, so with all that was lost between: it tells when to give the peer up.
    first : dict of int to float
        When each message under way was transmitted first, or when some of it was last known to have arrived.
    """

    trips: RoundTrips = RoundTrips()
    answers: RoundTrips = RoundTrips()
    first: dict[int, float] = field(default_factory=dict)

    def copy(self) -> LearningLink:
        copied = Link.copy(self)
        assert isinstance(copied, LearningLink)
        return replace(copied, first=self.first.copy())

    def silence(self, least: float) -> float:
        """Seconds without news after which the peer is given up; ``least`` of its settings, or more if it is slow."""
        return max(least, PATIENCE * self.answers.wait(0.0, MOST_SILENCE * least / PATIENCE))

    def noted(self, number: int, now: float) -> None:
        """Message ``number`` is transmitted."""
        self.first.setdefault(number, now)

    def learn(self, before: dict[int, float], now: float, silence: float) -> bool:
        """Learn from what has arrived of ``before``, the messages that were under way; whether of a retry's time.

        What took more than twice the time after which a peer is given up tells of an outage, not of its pace.
        """
        told, most = False, 2 * self.silence(silence)
        for number, sent in before.items():
            if self.under_way.get(number) == sent:
                continue  # nothing new of it
            first = self.first.pop(number, sent)
            if now - first <= most:
                self.answers = self.answers.after(now - first)
            if first == sent:
                self.trips, told = self.trips.after(now - sent), True
        for number, sent in self.under_way.items():
            self.first.setdefault(number, sent)
        return told
