"""Shards of what a simulation computes, on Ray: an actor each, on this machine or on the machines of a cluster.

One process has the run: its clock, nodes, ledgers and charges. What data sides are asked in one call of it, such as the
gradients of all nodes that compute at that time, is dealt out to the shards, and comes back in its order. Samples and
noise follow from the owner and the number of a charge, and a sum does not depend on what is computed beside it
(`experiment.preparation.engines` refuses the runs in which it does), so all bytes are those of one process.

What shards are made of is put where Ray keeps objects, once, without the seeds of samples and noise: each actor is told
these by a call, which goes from process to process. An actor that is lost ends the run, which goes on from its
checkpoint.

Ray has no users: whoever reaches its ports, and has its token where it asks for one, reads all of it and runs code as
whoever started it. So what is started here listens on the loopback interface alone and asks for a token, where Ray is
new enough (2.52).

References
----------
Ray, "Token authentication", https://docs.ray.io/en/latest/ray-security/token-auth.html.
Moritz et al., "Ray: A distributed framework for emerging AI applications", OSDI 2018.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import chain, pairwise
from typing import Any

from threadpoolctl import threadpool_limits

from gossamer.errors import CallerError, RunWarning, shortened
from gossamer.extras import require
from gossamer.sides.sums import Inputs
from gossamer.threads import available_cores, keep_to_this, replaced

UNGUARDED = (
    "Ray has no access control of its own: whoever reaches the cluster can read data, models and noise secrets; "
    "simulated or public data only"
)
ENDED = "Ray itself has ended, or cannot be reached; see its logs"
_ANSWER = 20.0
"""Seconds for a cluster to answer; Ray itself waits for minutes."""
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1"}
_TOKEN = {"RAY_AUTH_MODE": "token"}
_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Variable that, with 0, has Ray on every system listen where it does on those two: on the loopback interface alone."""


@contextmanager
def connected(cpus: int | None = None) -> Iterator[Any]:
    """Give the package ``ray``, connected; in the end the connection, and what was started for it, are gone.

    The cluster is that of Ray's own variable ``RAY_ADDRESS``, ``HOST:PORT`` or ``auto``; without it Ray is started on
    this machine. Whoever called `ray.init` before keeps that connection, which is used then.

    Parameters
    ----------
    cpus : int, optional
        Number of cores of what is started here; all by default.

    Raises
    ------
    CallerError
        If the package is missing, ``RAY_ADDRESS`` is none or nothing answers there, or Ray cannot be started.
    """
    address = cluster()
    ray = _package(_QUIET if address is not None else {**_QUIET, **_TOKEN})
    if address is not None:
        _check(address)
    if ray.is_initialized():
        yield ray
        return
    with nullcontext() if address is not None else _loopback(), _stdout_ours():
        try:
            _connect(ray, address, cpus)
            yield ray
        finally:
            ray.shutdown()


def cluster() -> str | None:
    """Address of the cluster that Ray is to use; None where it is to be started on this machine."""
    return os.environ.get("RAY_ADDRESS") or None


def _package(variables: Mapping[str, str]) -> Any:
    """Import Ray, which reads these variables then, unless somebody did before; so does what it starts."""
    if "ray" not in sys.modules:
        for name, value in variables.items():
            os.environ.setdefault(name, value)
    require("ray", "work on Ray needs", "ray")
    import ray

    return ray


@contextmanager
def _loopback() -> Iterator[None]:
    """Have Ray, and what it starts, use the loopback interface."""
    from ray._private import ray_constants as constants  # where Ray keeps what it read when it was imported

    with replaced(vars(constants), ENABLE_RAY_CLUSTER=False), replaced(os.environ, **{_LOOPBACK: "0"}):
        yield


def _stdout_ours() -> AbstractContextManager[Any]:
    """Have Ray log what it says of lost workers, of which our own lines tell; it prints it, whatever it is asked."""
    from ray._private import worker

    log = logging.getLogger("ray")
    return replaced(vars(worker), print_to_stdstream=lambda data, **_: log.info("%s", data))


def _connect(ray: Any, address: str | None, cpus: int | None) -> None:
    where = {"address": "local", "num_cpus": cpus} if address is None else {"address": address}
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**where, include_dashboard=False, log_to_driver=False, logging_level="error")
    except (OSError, RuntimeError, ValueError) as error:
        reason = shortened(" ".join(str(error).split()), 300)
        raise CallerError(
            f"Ray cannot start on this machine: {reason}; see its logs"
            if address is None
            else f"RAY_ADDRESS={address}: cannot connect as a machine of that cluster: {reason}; have ray start join "
            "it here, with its versions of Ray and Python"
        ) from None
    finally:
        if signal.getsignal(signal.SIGTERM) is not before:  # Ray's own ends the process, whatever it is at
            signal.signal(signal.SIGTERM, before)


def _check(address: str) -> None:
    """Raise CallerError unless a cluster answers at ``address``, by another process, which can be left alone."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "status", "--address", address]
    try:
        asked = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_ANSWER
        )
    except subprocess.TimeoutExpired:
        reason = f"nothing in {_ANSWER:g} seconds"
    else:
        if asked.returncode == 0:
            return
        reason = shortened(asked.stderr.strip().rpartition("\n")[2], 200)
    raise CallerError(
        f"RAY_ADDRESS={address}: no Ray cluster answers there ({reason}); give HOST:PORT of the cluster's head, as ray "
        "start printed it, or auto"
    )


Seeds = tuple[int, int | None]
"""Seeds of a run's noise and of its samples, as `sides.home.Simulated` has them."""
Maker = Callable[[Seeds], Sequence[Any]]
"""Makes what computes for data sides, one object of a kind. It can be pickled, and knows no secret."""


class _Actor:
    """A process with one shard, which computes with one thread."""

    def make(self, maker: Maker, seeds: Seeds) -> None:
        self._limits = threadpool_limits(1)
        keep_to_this()
        self._own = {type(one): one for one in maker(seeds)}
        gc.freeze()

    def call(self, kind: type, method: str, asked: Sequence[Inputs]) -> Any:
        return getattr(self._own[kind], method)(asked)


class RayShards:
    """Shards on Ray, for `gossamer.run`: an actor each.

    Parameters
    ----------
    shards : int
        Number of processes that a run's gradients and local trainings are dealt out to.
    """

    def __init__(self, shards: int) -> None:
        self.shards = shards

    def start(self, maker: Maker, seeds: Seeds) -> None:
        """Make the shards of a run.

        Raises
        ------
        CallerError
            If Ray does not start, or the cluster is not there.
        """
        with ExitStack() as stack:
            self._ray = ray = stack.enter_context(connected(max(available_cores(), self.shards)))
            if cluster() is not None:
                warnings.warn(UNGUARDED, RunWarning, stacklevel=2)
            actor, made = ray.remote(_Actor).options(num_cpus=1, max_restarts=0, max_task_retries=0), ray.put(maker)
            self.actors = [actor.remote() for _ in range(self.shards)]
            for one in self.actors:
                stack.callback(ray.kill, one)
            self._found([one.make.remote(made, seeds) for one in self.actors])
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Let go of the shards."""
        self._stack.close()

    def compute(self, together: Any, asked: Sequence[Inputs]) -> list[Any]:
        """Return what ``together``, a method that computes for data sides, would return."""
        nobody: Any = None  # who asks, and who answers, stays here
        bare = [one._replace(ticket=one.ticket._replace(side=None), together=nobody) for one in asked]
        places = [number * len(bare) // self.shards for number in range(self.shards + 1)]
        parts = [bare[first:last] for first, last in pairwise(places) if first < last]
        return [*chain.from_iterable(self.ask(type(together.__self__), together.__name__, parts))]

    def ask(self, kind: type, method: str, parts: Sequence[Sequence[Inputs]]) -> list[Sequence[Any]]:
        """Call a method of what is of a ``kind``, on a shard for each of ``parts``; what they return, in order."""
        return self._found([one.call.remote(kind, method, part) for one, part in zip(self.actors, parts, strict=False)])

    def _found(self, asked: list[Any]) -> list[Any]:
        try:
            found: list[Any] = self._ray.get(asked)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except self._ray.exceptions.RayError as error:
            reason = shortened(" ".join(str(error).split()), 200)
            raise CallerError(
                f"a shard was lost, as happens where memory runs out ({reason}); gossamer run --resume goes on from "
                "the last checkpoint"
            ) from None
        return found
