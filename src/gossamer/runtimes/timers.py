"""Timers of nodes in a simulation: each rings once, unless it is cancelled or set anew before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gossamer.protocol.effects import CancelTimer, SetTimer
from gossamer.protocol.events import Elapsed, Event
from gossamer.runtimes.mail import Action


class Timers:
    """The timers of all nodes, by name.

    Parameters
    ----------
    schedule : callable
        Has an action happen: (time, action, node, what).
    happen : callable
        Shows a node an event: (node, event).
    """

    def __init__(
        self, schedule: Callable[[float, Action, str, Any], None], happen: Callable[[str, Event], None]
    ) -> None:
        self._schedule, self._happen = schedule, happen
        self._set = 0
        self._tokens: dict[tuple[str, str], int] = {}

    def close(self) -> None:
        """Let go of whom it shows events."""
        del self._schedule, self._happen

    @property
    def actions(self) -> dict[str, Action]:
        """All that it schedules, by names for snapshots."""
        return {"ring": self._ring}

    def snapshot(self) -> tuple[Any, ...]:
        """Return all that changes, as plain data."""
        return self._set, self._tokens.copy()

    def restore(self, snapshot: tuple[Any, ...]) -> None:
        """Be as the timers were whose `snapshot` this is."""
        self._set, self._tokens = snapshot

    def set(self, name: str, effect: SetTimer, now: float) -> None:
        """Set a timer of a node."""
        self._set += 1
        self._tokens[name, effect.name] = self._set
        self._schedule(now + effect.after, self._ring, name, (effect.name, self._set))

    def cancel(self, name: str, effect: CancelTimer) -> None:
        """Have a timer of a node ring no more."""
        self._tokens.pop((name, effect.name), None)

    def lose(self, name: str) -> None:
        """Forget the timers of a node."""
        self._tokens = {key: token for key, token in self._tokens.items() if key[0] != name}

    def _ring(self, name: str, what: tuple[str, int], now: float) -> None:
        timer, token = what
        if self._tokens.get((name, timer)) == token:  # otherwise it was cancelled, or set anew
            del self._tokens[name, timer]
            self._happen(name, Elapsed(timer))
