"""A party: from its invitation, its data and its owner's policy to a node that runs.

Nothing is joined, and no data are touched, before the policy has let the invitation pass; nothing is released before
the plan of the whole run is in the ledger of the data.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

from threadpoolctl import threadpool_limits

from gossamer.deployment.founding.invitations import Invitation
from gossamer.deployment.founding.layout import AUTHORITY, CERTIFICATE
from gossamer.deployment.party.data_side import DataHeld
from gossamer.deployment.party.joining import Invited, accept
from gossamer.deployment.party.loop import Clock, NodeLoop
from gossamer.deployment.party.neighbours import neighbours
from gossamer.deployment.party.options import PartyOptions
from gossamer.deployment.party.renewing import Newer, check_newer, fitting, open_host
from gossamer.deployment.party.reporting import Reporter
from gossamer.deployment.party.results import write_results
from gossamer.deployment.party.state_folder import StateFolder, opened
from gossamer.deployment.party.tasks import Tasks, Worker
from gossamer.deployment.peers.peers import Peers, PeerSettings
from gossamer.errors import CallerError, GossamerError
from gossamer.protocol.trace import Step, whole_steps, write_step
from gossamer.runtimes.mqtt.transport import BrokerAddress, MqttTransport, Tls, TransportSettings
from gossamer.runtimes.storage.store import SqliteStore

LARGEST_DATAGRAM = 1 << 20
"""Most bytes that the broker has to take."""
_STOPPED, _RENEWED, _LEFT = "stopped", "renewed", "left"
_FLUSH = 5.0  # most seconds for the last datagrams to get to the broker


def run_party(options: PartyOptions) -> str:
    """Run a party's node until its part in the run is over, or it is stopped.

    Returns
    -------
    str
        ``finished`` or ``stopped``.

    Raises
    ------
    GossamerError
        With one line on why it cannot go on.
    """
    with ExitStack() as stack:
        # Sums in BLAS depend on the number of threads; results must not, and peers may share the machine.
        stack.enter_context(threadpool_limits(1))
        folder = StateFolder(options.state, echo=not options.quiet)
        invited = accept(options)
        terms = invited.agreed.terms
        folder.named(terms.invitation.run, terms.me.name)
        folder.take()
        stack.callback(folder.give_back)
        invited = fitting(options, invited, folder)
        while (state := _take_part(options, invited, folder)) == _RENEWED:
            try:
                newer = accept(options)
                check_newer(invited.agreed, newer.agreed)
                invited = newer
            except CallerError as error:
                folder.warn(f"does not accept the newer invitation, and goes on by the old one: {error}")
        return state


def _take_part(options: PartyOptions, invited: Invited, folder: StateFolder) -> str:
    """Run the node by one invitation."""
    certificate = options.folder / CERTIFICATE
    reporter = Reporter(invited, folder, certificate if certificate.exists() else None)
    try:
        with ExitStack() as stack:
            return _run(options, invited, folder, reporter, stack)
    except GossamerError as error:
        reporter.ended("failed", str(error))
        raise


def _run(options: PartyOptions, invited: Invited, folder: StateFolder, reporter: Reporter, stack: ExitStack) -> str:
    agreed, invitation = invited.agreed, invited.agreed.terms.invitation
    store = SqliteStore(_store_file(options), invitation.run, invitation.me.name)
    stack.callback(store.close)
    # What is wrong with the store is known before the run's plan is entered in the ledger.
    host = open_host(invited, folder, store, _watch(options.trace, stack))
    held = DataHeld(options, invited, folder)
    stack.callback(held.close)
    reporter.begins(host, held)
    transport = stack.enter_context(_transport(options, invitation, folder))
    worker = Worker(Tasks(invitation.me.name, held.computer), transport.wake)
    stack.callback(worker.stop)
    clock, near = Clock(), neighbours(agreed.prepared, invitation.me.name)
    peers = _peers(options, invited, near, clock(), folder)
    newer = Newer(options.invitation, invitation, folder.warn)
    loop = NodeLoop(
        host,
        peers,
        worker,
        transport,
        folder,
        clock,
        linger=options.wait,
        gone_after=options.gone_after,
        serves=not agreed.terms.holds_data,
    )

    def look() -> None:
        reporter.look(loop)
        if newer.look(clock()):
            loop.stop(_RENEWED)

    loop.look = look
    with _stopped_by_signals(loop):
        if not host.begun:
            loop.gather(near, options.wait)
        loop.run()
        if loop.stopping:
            loop.settle()
        if loop.stopping == _STOPPED and folder.leaving:
            loop.leave(_LEFT)
    loop.farewell()
    transport.flush(_FLUSH)
    if loop.stopping == _RENEWED:
        return _RENEWED
    reporter.write(loop, clock())
    transport.close()  # how long this party trains and tests for itself is nobody else's business
    write_results(folder, agreed, host, held)
    state = "finished" if host.finished else _STOPPED
    reporter.ended(state)
    return state


def _transport(options: PartyOptions, invitation: Invitation, folder: StateFolder) -> MqttTransport:
    limits = TransportSettings(
        connect_timeout=options.connect_timeout, largest_datagram=LARGEST_DATAGRAM, presence=False
    )
    address = broker_address(options, invitation)
    folder.say(f"connects to {address}")
    return MqttTransport(invitation.run, invitation.me.name, address, limits, folder.warn)


def _peers(options: PartyOptions, invited: Invited, near: tuple[str, ...], now: float, folder: StateFolder) -> Peers:
    invitation, gone = invited.agreed.terms.invitation, options.gone_after
    settings = PeerSettings(heartbeat=gone / 20, silence=gone / 6, gone_after=gone)
    return Peers(
        invited.identity,
        invitation.run,
        invitation.me.name,
        invitation.members,
        settings,
        now,
        contacts=near,
        log=folder.say,
        warn=folder.warn,
    )


def broker_address(options: PartyOptions, invitation: Invitation) -> BrokerAddress:
    """Address of the broker, with the files for TLS that lie beside the invitation.

    Raises
    ------
    CallerError
        If a file is missing.
    """
    parts = urlsplit(invitation.broker)
    assert parts.hostname is not None  # an invitation has been checked
    assert parts.port is not None
    if parts.scheme == "mqtt":
        return BrokerAddress(parts.hostname, parts.port)
    authority, certificate = options.folder / AUTHORITY, options.folder / CERTIFICATE
    missing = [str(file) for file in (authority, certificate) if not file.is_file()]
    if missing:
        raise CallerError(
            f"the broker {invitation.broker} wants TLS, and there is no {' and no '.join(missing)}; put what the "
            "organiser handed over beside the invitation"
        )
    # The certificate is for the party's identity.
    return BrokerAddress(parts.hostname, parts.port, Tls(authority, certificate, options.key))


def _store_file(options: PartyOptions) -> Path:
    file = options.state / "store.sqlite"
    if file.exists() and not options.resume:
        raise CallerError(
            f"{file}: an earlier process of this node has been there; a node that forgets its part is refused by its "
            "peers, so go on with it (leave out --no-resume), or give another --store for another run"
        )
    return file


def _watch(path: Path | None, stack: ExitStack) -> Callable[[Step], None] | None:
    if path is None:
        return None
    try:
        # Raw models of units may be in it, so it is for nobody else to read. Each step is written at once.
        file = stack.enter_context(opened(path, buffering=0))
        with path.open("rb") as before:
            file.truncate(whole_steps(before))
    except OSError as error:
        raise CallerError(f"{path}: cannot write the trace: {error.strerror}; choose another file") from None
    return lambda step: write_step(file, step)


@contextmanager
def _stopped_by_signals(loop: NodeLoop) -> Iterator[None]:
    """The first interrupt ends the loop after its turn; the second one is the usual."""
    before: dict[signal.Signals, Any] = {}

    def stop(signum: int, frame: FrameType | None) -> None:
        loop.stop(_STOPPED)
        for name, handler in before.items():
            signal.signal(name, handler)

    for name in (signal.SIGINT, signal.SIGTERM):
        before[name] = signal.signal(name, stop)
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
