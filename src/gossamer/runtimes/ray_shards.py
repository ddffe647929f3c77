"""Shards of a simulation on Ray: an actor each, on this machine or on the machines of a cluster.

What shards are made of is put where Ray keeps objects, once, and so are their snapshots. The seed of the noise is in
neither: each actor is told it by a call, which goes from process to process.

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
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from threadpoolctl import threadpool_limits

from gossamer.errors import CallerError, RunWarning, shortened
from gossamer.extras import require
from gossamer.runtimes.shards import LOST, Crew, Engine, Maker
from gossamer.threads import available_cores, keep_to_this

AUTO = "auto"
"""Address of the cluster that this machine is a node of."""
UNGUARDED = (
    "Ray has no access control of its own: whoever reaches the cluster can read data, models and noise secrets; "
    "simulated or public data only"
)
ENDED = "Ray itself has ended, or cannot be reached; see its logs"
_CONNECT, _ANSWER = 3.0, 20.0
"""Seconds for a connection, and for an answer as Ray gives it; without them Ray itself waits for minutes."""
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

    before, variable = getattr(constants, "ENABLE_RAY_CLUSTER", True), os.environ.get(_LOOPBACK)
    constants.ENABLE_RAY_CLUSTER, os.environ[_LOOPBACK] = False, "0"
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before
        if variable is None:
            del os.environ[_LOOPBACK]
        else:
            os.environ[_LOOPBACK] = variable


@contextmanager
def _stdout_ours() -> Iterator[None]:
    """Have Ray log what it says of lost workers, of which our own lines tell; it prints it, whatever it is asked."""
    from ray._private import worker as imported

    worker: Any = imported
    before, log = getattr(worker, "print_to_stdstream", None), logging.getLogger("ray")
    worker.print_to_stdstream = lambda data, **_: log.info("%s", data)
    try:
        yield
    finally:
        worker.print_to_stdstream = before


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
    """Raise CallerError unless a cluster answers at ``address`` in a few seconds."""
    if address != AUTO:
        host, port = _parts(address)
        try:
            socket.create_connection((host, port), _CONNECT).close()
        except OSError as error:
            raise CallerError(
                f"RAY_ADDRESS={address}: nothing answers there ({error.strerror or error}); give HOST:PORT of the "
                "cluster's head, as ray start printed it"
            ) from None
    _ask(address)


def _parts(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise CallerError(f"RAY_ADDRESS: expected HOST:PORT of a Ray cluster, or auto, found {shortened(address)}")
    return host.strip("[]"), int(port)


def _ask(address: str) -> None:
    """Have another process ask the cluster how it is: that one can be left alone when no answer comes."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "status", "--address", address]
    try:
        asked = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_ANSWER
        )
    except subprocess.TimeoutExpired:
        raise CallerError(f"RAY_ADDRESS={address}: no Ray cluster answers there; {_HEAD}") from None
    if asked.returncode == 0:
        return
    if "InvalidAuthToken" in asked.stderr or "AuthenticationError" in asked.stderr:
        raise CallerError(
            f"RAY_ADDRESS={address}: that cluster asks for a token; say RAY_AUTH_MODE=token, and have its token in "
            "~/.ray/auth_token or RAY_AUTH_TOKEN"
        )
    lines = asked.stderr.strip().splitlines()
    raise CallerError(
        f"RAY_ADDRESS={address}: no Ray cluster answers there ({shortened(lines[-1] if lines else '', 200)}); {_HEAD}"
    )


_HEAD = "give HOST:PORT of the cluster's head, as ray start printed it (6379 if nothing else was said)"


@dataclass(frozen=True)
class RayShards:
    """Shards on Ray, for `gossamer.run`.

    Parameters
    ----------
    shards : int
        Number of shards that the run's nodes are dealt out to.
    """

    shards: int

    def of(self, shards: int) -> Engine:
        return replace(self, shards=shards)

    def crew(self, deal: Callable[[int], Maker], nodes: int, seed: int) -> Crew:
        maker = deal(self.shards)  # what is wrong with it need not wait for Ray
        with ExitStack() as stack:
            ray = stack.enter_context(connected(max(available_cores(), self.shards) if cluster() is None else None))
            if cluster() is not None:
                warnings.warn(UNGUARDED, RunWarning, stacklevel=2)
            crew = RayCrew(ray, self.shards, maker, seed)
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
