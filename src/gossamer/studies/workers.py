"""Workers that make the runs of a study: processes of this machine, or of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from gossamer.errors import CallerError
from gossamer.processes import results
from gossamer.runtimes.ray_extra import connected
from gossamer.studies.ray_tasks import RayTasks
from gossamer.studies.runs import Outcome, StudyRun

ENGINES = ("processes", "ray")
Tell = Callable[[str], None]
"""Is called with a line about how it goes."""


class Workers(Protocol):
    """Whoever makes runs."""

    @property
    def at_once(self) -> int:
        """About how many runs are made at a time: the first of those that are not done."""

    @property
    def remarks(self) -> Sequence[str]:
        """Lines that people should know before the first run."""

    def outcomes(self, runs: Sequence[StudyRun], tell: Tell) -> Iterator[Outcome]:
        """Make the runs, begun in their order, and yield the outcome of each as it is done."""


@dataclass(frozen=True)
class Processes:
    """Processes of this machine; with one run at a time, this process.

    Attributes
    ----------
    at_once : int
        How many.
    remarks : sequence of str
        None.
    """

    at_once: int = 1
    remarks: Sequence[str] = ()

    def outcomes(self, runs: Sequence[StudyRun], tell: Tell) -> Iterator[Outcome]:
        """Make the runs."""
        return results(runs, self.at_once, in_order=False)


@contextmanager
def workers_of(engine: str | None = None, jobs: int | None = None, address: str | None = None) -> Iterator[Workers]:
    """Workers, for as long as the block takes.

    Parameters
    ----------
    engine : str, optional
        ``processes`` of this machine, or ``ray``; by default ``ray`` where there is an address.
    jobs : int, optional
        Runs at a time, at most; by default one on this machine, and on Ray as many as it has processors.
    address : str, optional
        Of a Ray cluster; by default Ray is started on this machine.

    Raises
    ------
    CallerError
        If there is no such engine, or Ray is not installed or does not answer.
    """
    engine = engine or ENGINES[address is not None]
    if engine not in ENGINES:
        raise CallerError(f"expected the engine {' or '.join(ENGINES)}, found {engine!r}")
    if engine != "ray":
        if address is not None:
            raise CallerError(
                f"--address {address} is of a Ray cluster, found --engine {engine} as well; leave one out"
            )
        yield Processes(jobs or 1)
        return
    with connected(address, jobs) as ray:
        yield RayTasks(ray, jobs)
