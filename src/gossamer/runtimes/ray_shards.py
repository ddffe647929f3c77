"""Shards of a simulation on Ray: an actor each, on this machine or on the machines of a cluster.

What shards are made of is put where Ray keeps objects, once, and so are their snapshots. The seed of the noise is in
neither: each actor is told it by a call, which goes from process to process. Ray has no access control, so whoever
reaches the cluster can read all of it.

References
----------
Moritz et al., "Ray: A distributed framework for emerging AI applications", OSDI 2018.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from threadpoolctl import threadpool_limits

from gossamer.errors import CallerError, RunWarning
from gossamer.runtimes.crew import LOST, Crew, Engine, Maker
from gossamer.runtimes.ray_extra import ENDED, UNGUARDED, connected
from gossamer.threads import available_cores, keep_to_this


@dataclass(frozen=True)
class RayShards:
    """Shards on Ray, for `gossamer.run`.

    Parameters
    ----------
    shards : int, optional
        Number of shards that the run's nodes are dealt out to; by default one for each core.
    address : str, optional
        ``HOST:PORT`` of a cluster; None starts Ray on this machine.
    """

    shards: int | None = None
    address: str | None = None

    def of(self, shards: int) -> Engine:
        return replace(self, shards=shards)

    def crew(self, deal: Callable[[int], Maker], nodes: int, seed: int) -> Crew:
        maker = None if self.shards is None else deal(self.shards)  # what is wrong with it need not wait for Ray
        with ExitStack() as stack:
            local = max(available_cores(), self.shards or 1) if self.address is None else None
            ray = stack.enter_context(connected(self.address, local))
            if self.address is not None:
                warnings.warn(UNGUARDED, RunWarning, stacklevel=2)
            cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
            shards = min(nodes, cores) if self.shards is None else self.shards
            crew = RayCrew(ray, shards, deal(shards) if maker is None else maker, seed)
            stack.callback(crew.end)
            crew.start()
            crew.stack = stack.pop_all()
        return crew


class _Actor:
    """A process with one shard, which computes with one thread."""

    def make(self, maker: Maker, seed: int, number: int) -> None:
        self._limits = threadpool_limits(1)
        keep_to_this()
        self._shard = maker.shard(seed, number)
        gc.freeze()
        gc.set_threshold(100_000)  # in a run nearly everything stays, or goes when it is let go

    def call(self, method: str, arguments: tuple[Any, ...]) -> Any:
        return getattr(self._shard, method)(*arguments)


class RayCrew(Crew):
    """Actors, one a shard.

    Attributes
    ----------
    stack : ExitStack
        Stack of what ends with them, such as the connection.
    """

    def __init__(self, ray: Any, shards: int, maker: Maker, seed: int) -> None:
        super().__init__(shards)
        self.stack = ExitStack()
        self._ray, self._seed = ray, seed
        self._maker = ray.put(maker)
        self._class = ray.remote(_Actor).options(num_cpus=1, max_restarts=0, max_task_retries=0)
        self.actors: list[Any] = [None] * shards

    def start(self) -> None:
        """Make all shards, at the same time."""
        made = [self._begin(number) for number in range(self.shards)]
        for ref in made:
            if self._found(ref) is LOST:
                raise CallerError("a process of Ray ended while it was started; see its log, or take fewer --shards")

    def end(self) -> None:
        """End the actors."""
        for actor in self.actors:
            if actor is not None:
                self._ray.kill(actor)

    def close(self) -> None:
        self.stack.close()

    def _begin(self, number: int) -> Any:
        self.actors[number] = self._class.remote()
        return self.actors[number].make.remote(self._maker, self._seed, number)

    def _make(self, number: int) -> None:
        self._found(self._begin(number))  # if it is lost again, its first answer is

    def _one(self, number: int, method: str, arguments: tuple[Any, ...]) -> Any:
        return self._found(self.actors[number].call.remote(method, arguments))

    def _call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        asked = [actor.call.remote(method, given) for actor, given in zip(self.actors, arguments, strict=True)]
        return [self._found(ref) for ref in asked]

    def _found(self, ref: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(ref)
        except (errors.LocalRayletDiedError, errors.RaySystemError):
            raise CallerError(f"{ENDED}; gossamer run --resume goes on from the last checkpoint") from None
        except errors.RayActorError:
            return LOST
        except errors.RayTaskError as error:
            raise error.cause from None
