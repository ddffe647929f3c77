"""Links of simulated networks, and delivery over them: straight if they are reliable, through sessions if not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gossamer.algorithms.context import InFlight
from gossamer.protocol.effects import Send
from gossamer.protocol.events import Event, Received
from gossamer.protocol.messages import Message, frame_size, may_hear, measured
from gossamer.protocol.session import Output, Session, SessionSettings, Transmit
from gossamer.protocol.snapshots import Kept
from gossamer.randomness import Stream
from gossamer.runtimes.activity import Activity
from gossamer.runtimes.loop import Action, LoopPart, Timers
from gossamer.runtimes.world import LinkSettings


class Links(Kept):
    """The links of one run; ``transmit`` says when each copy of a frame arrives.

    All draws depend on the seed and the number of the frame only.

    Parameters
    ----------
    settings : LinkSettings
        Section of the spec.
    names : tuple of str
        The nodes.
    seed : int
        Seed of the draws.
    start : float
        Seconds on the clock at which the links are idle.
    """

    changing = ("frames", "uplink_free", "link_free")

    def __init__(self, settings: LinkSettings, names: tuple[str, ...], seed: int, start: float) -> None:
        self.settings, self.start, self.reliable = settings, start, settings.reliable
        self.draws = Stream(seed, "links")
        self.numbers = {name: number for number, name in enumerate(names)}
        self.frames = 0
        self.uplink_free = dict.fromkeys(names, start)
        self.link_free: dict[tuple[str, str], float] = {}  # of those with a bandwidth of their own
        self._known: dict[tuple[str, str], tuple[float, float | None]] = {}  # latency and bandwidth

    def transmit(self, sender: str, to: str, size: int, now: float) -> tuple[float, ...]:
        """Arrival times of the copies of a frame of ``size`` bytes; none if it is lost."""
        settings = self.settings
        left = now
        if settings.bandwidth is not None:
            left = max(now, self.uplink_free[sender]) + size / settings.bandwidth
            self.uplink_free[sender] = left
        latency = settings.latency
        if settings.exceptions is not None:
            latency, bandwidth = self._known.get((sender, to)) or self._look_up(sender, to)
            if bandwidth is not None:  # after those before it on this link
                left = max(left, self.link_free.get((sender, to), self.start)) + size / bandwidth
                self.link_free[sender, to] = left
        if self.reliable:
            return (left + latency,)
        return self._unreliable(sender, to, left, latency, now)

    def _look_up(self, sender: str, to: str) -> tuple[float, float | None]:
        latency, bandwidth = self.settings.latency, None
        for one in self.settings.exceptions or ():
            if one.covers(self.numbers[sender], self.numbers[to]):
                latency = latency if one.latency is None else one.latency
                bandwidth = bandwidth if one.bandwidth is None else one.bandwidth
        self._known[sender, to] = latency, bandwidth
        return latency, bandwidth

    def _unreliable(self, sender: str, to: str, left: float, latency: float, now: float) -> tuple[float, ...]:
        settings = self.settings
        self.frames += 1
        lost, twice, jitter, more_jitter = self.draws.at(self.frames).random(4)
        if lost < settings.loss or self._cut(sender, to, now):
            return ()
        jitters = (jitter, more_jitter) if twice < settings.duplicate else (jitter,)
        return tuple(left + latency + settings.jitter * float(draw) for draw in jitters)

    def _cut(self, sender: str, to: str, now: float) -> bool:
        ends = {self.numbers[sender], self.numbers[to]}
        return any(
            cut.start <= now - self.start < (math.inf if cut.end is None else cut.end)
            and len(ends & set(cut.group)) == 1
            for cut in self.settings.partitions
        )


class Post(LoopPart):
    """The messages of one run.

    Parameters
    ----------
    names : tuple of str
        The nodes.
    links : LinkSettings
        Links between them.
    sessions : bool
        Whether messages may be lost on the way, so that sessions are needed.
    seed : int
        Seed of the links' draws.
    start : float
        Seconds on the clock at which the run starts.
    schedule : callable
        Has an action happen: (time, action, node, what).
    happen : callable
        Shows a node an event: (node, event).
    units : mapping of str to str
        The trust scope of each node that is in one. What is `Confined` does not leave it.
    activity : Activity
        Activity in which what nodes send is counted.

    Attributes
    ----------
    messages, bytes : int
        Numbers of what was transmitted, retransmissions and acknowledgements included.
    under_way : int
        Messages that were sent and have not been received.
    """

    changing = ("messages", "bytes", "under_way", "_links", "_wakes", "_away", "_flying", "_sessions")
    acts = ("_arrive", "_frame")

    def __init__(
        self,
        names: tuple[str, ...],
        links: LinkSettings,
        sessions: bool,
        seed: int,
        start: float,
        schedule: Callable[[float, Action, str, Any], None],
        happen: Callable[[str, Event], None],
        units: Mapping[str, str],
        activity: Activity,
    ) -> None:
        super().__init__(schedule, happen)
        self._units, self._activity = units, activity
        self._counts, self._ages = activity.counts, activity.by_message
        self.messages, self.bytes, self.under_way = 0, 0, 0
        self._links = Links(links, names, seed, start)
        plain = links.reliable and links.bandwidth is None and links.exceptions is None
        self._latency = links.latency if plain else None  # where it is all that there is to a link
        settings = SessionSettings(links.retry_after, longest_retry=8 * links.retry_after, silence=links.silence)
        self._sessions = {name: Session(name, settings) for name in names} if sessions else {}
        self._wakes = Timers(schedule, self._wake)
        self._away: set[str] = set()
        self._flying: dict[tuple[str, str], list[Message]] = {}

    def in_flight(self, entries: Iterable[Sequence[Any]]) -> list[InFlight]:
        """Messages that were sent and have not been received, among ``entries`` of what is scheduled.

        Without sessions that is where each of them is; a session keeps them until they are acknowledged.
        """
        if self._sessions:
            return [InFlight(sender, to, item) for (sender, to), queue in self._flying.items() for item in queue]
        arrivals = sorted(
            (entry for entry in entries if entry[-3] == self._arrive), key=lambda entry: (entry[0], entry[1])
        )
        return [InFlight(what[0], to, what[1]) for *_, to, what in arrivals]

    def close(self) -> None:
        super().close()
        self._wakes.close()

    def send(self, sender: str, effect: Send, now: float) -> None:
        """Take a message from ``sender``.

        Raises
        ------
        TypeError
            If the message may not be sent at all, or not to whom the sender does not trust.
        """
        to, message = effect.to, effect.message
        size, confined = measured(message)
        if confined and not may_hear(self._units, sender, to):
            raise TypeError(f"{type(message).__name__} is confined to those whom {sender} trusts, and {to} is none")
        self.under_way += 1
        if self._sessions:
            self._flying.setdefault((sender, to), []).append(message)
            self._converse(sender, self._sessions[sender].send(to, message, now), now)
        else:  # nothing is lost
            self._schedule(self._transmit(sender, to, size, now)[0], self._arrive, to, (sender, message))

    def leave(self, name: str) -> None:
        """Lose what comes to node ``name`` from now on."""
        self._away.add(name)
        self._wakes.cancel(name, "")

    def come_back(self, name: str, now: float) -> None:
        """Node ``name`` hears again, and sends what was not acknowledged."""
        self._away.discard(name)
        self._converse(name, self._sessions[name].wake(now), now)

    def _transmit(self, sender: str, to: str, size: int, now: float) -> tuple[float, ...]:
        self.messages += 1
        self.bytes += size
        counts = self._counts[sender]
        counts.messages += 1
        counts.bytes += size
        if counts.place is not None:
            self._activity.draw_sent(counts.place, now)
        return self._links.transmit(sender, to, size, now) if self._latency is None else (now + self._latency,)

    def _arrive(self, name: str, what: tuple[str, Message], now: float) -> None:
        sender, message = what
        self.under_way -= 1
        if self._sessions:
            self._landed(sender, name)
        if self._ages:
            self._activity.arrived(sender, name, message)
        self._happen(name, Received(sender, message))

    def _landed(self, sender: str, name: str) -> None:
        flying = self._flying[sender, name]
        if len(flying) == 1:
            del self._flying[sender, name]  # of a large run most pairs are idle
        else:
            del flying[0]

    def _frame(self, name: str, what: tuple[str, Any], now: float) -> None:
        if name not in self._away:
            sender, frame = what
            self._converse(name, self._sessions[name].receive(sender, frame, now), now)

    def _wake(self, name: str, _: str, now: float) -> None:
        self._converse(name, self._sessions[name].wake(now), now)

    def _converse(self, name: str, outputs: Sequence[Output], now: float) -> None:
        """Carry out what a session asks for."""
        for output in outputs:
            if isinstance(output, Transmit):
                for arrival in self._transmit(name, output.to, frame_size(output.frame), now):
                    self._schedule(arrival, self._frame, output.to, (name, output.frame))
            elif isinstance(output, Received):
                self._arrive(name, (output.sender, output.message), now)
            else:
                self._happen(name, output)
        due = self._sessions[name].deadline()
        if due is not None and self._wakes.due(name, "") != (due := max(due, now)):
            self._wakes.set_for(name, "", due)
