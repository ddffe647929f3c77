"""Ray: the one place that imports it, starts it on this machine, or connects to a cluster.

Ray has no users: whoever reaches its ports, and has its token where it asks for one, runs code as whoever started it.
So what is started here listens on the loopback interface alone and asks for a token, where Ray is new enough (2.52).

References
----------
Ray, "Token authentication", https://docs.ray.io/en/latest/ray-security/token-auth.html.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from gossamer.errors import CallerError, shortened
from gossamer.extras import require

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
def connected(address: str | None = None, cpus: int | None = None) -> Iterator[Any]:
    """Give the package ``ray``, connected; in the end the connection, and what was started for it, are gone.

    Whoever called `ray.init` before keeps that connection, which is used then.

    Parameters
    ----------
    address : str, optional
        ``HOST:PORT`` of a cluster, or ``auto``; None starts Ray on this machine.
    cpus : int, optional
        Number of cores of what is started here; all by default.

    Raises
    ------
    CallerError
        If the package is missing, the address is none or nothing answers there, or Ray cannot be started.
    """
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
            else f"--address {address}: cannot connect as a machine of that cluster: {reason}; have ray start join it "
            "here, with its versions of Ray and Python"
        ) from None
    finally:
        if signal.getsignal(signal.SIGTERM) is not before:  # Ray's own ends the process, whatever it is at
            signal.signal(signal.SIGTERM, before)


# Addresses


def _check(address: str) -> None:
    """Raise CallerError unless a cluster answers at ``address`` in a few seconds."""
    if address != AUTO:
        host, port = _parts(address)
        try:
            socket.create_connection((host, port), _CONNECT).close()
        except OSError as error:
            raise CallerError(
                f"--address {address}: nothing answers there ({error.strerror or error}); give HOST:PORT of the "
                "cluster's head, as ray start printed it"
            ) from None
    _ask(address)


def _parts(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise CallerError(f"--address: expected HOST:PORT of a Ray cluster, or auto, found {shortened(address)}")
    return host.strip("[]"), int(port)


def _ask(address: str) -> None:
    """Have another process ask the cluster how it is: that one can be left alone when no answer comes."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "status", "--address", address]
    try:
        asked = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_ANSWER
        )
    except subprocess.TimeoutExpired:
        raise CallerError(f"--address {address}: no Ray cluster answers there; {_HEAD}") from None
    if asked.returncode == 0:
        return
    if "InvalidAuthToken" in asked.stderr or "AuthenticationError" in asked.stderr:
        raise CallerError(
            f"--address {address}: that cluster asks for a token; say RAY_AUTH_MODE=token, and have its token in "
            "~/.ray/auth_token or RAY_AUTH_TOKEN"
        )
    lines = asked.stderr.strip().splitlines()
    raise CallerError(
        f"--address {address}: no Ray cluster answers there ({shortened(lines[-1] if lines else '', 200)}); {_HEAD}"
    )


_HEAD = "give HOST:PORT of the cluster's head, as ray start printed it (6379 if nothing else was said)"
