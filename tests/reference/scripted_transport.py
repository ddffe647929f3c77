"""A transport whose messages a test writes, on a clock that only waiting moves."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from gossamer.protocol.transports import Datagram


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Transport:
    clock: Clock
    inbox: deque[Datagram] = field(default_factory=deque)
    sent: list[tuple[str, bytes]] = field(default_factory=list)
    connected: bool = True
    reason: str = ""
    anew: bool = False
    counts: Counter[str] = field(default_factory=Counter)

    def send(self, to: str, payload: bytes) -> bool:
        self.sent.append((to, payload))
        return True

    def receive(self, timeout: float) -> Datagram | None:
        if self.inbox:
            return self.inbox.popleft()
        self.clock.now += timeout
        return None

    def refusal(self, to: str) -> str:
        return ""

    def unconfirmed(self, seconds: float) -> str:
        return ""

    def waits(self, to: str) -> float | None:
        return None

    def reconnect(self, why: str) -> None:
        pass

    def wake(self) -> None:
        pass
