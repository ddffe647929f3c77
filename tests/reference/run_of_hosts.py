"""A run of linked hosts to its end."""

from __future__ import annotations

from collections.abc import Callable

from gossamer.faults.hosts import LinkedHosts


def run(hosts: LinkedHosts, most: int = 20_000, look: Callable[[], None] = lambda: None) -> None:
    """Let events happen until the run is over, and ``look`` after each."""
    while not hosts.over:
        assert hosts.next_time is not None, f"nothing is left to happen at {hosts.now}, finished: {hosts.finished}"
        assert hosts.events < most, f"not over after {most} events, finished: {hosts.finished}"
        hosts.step()
        look()
