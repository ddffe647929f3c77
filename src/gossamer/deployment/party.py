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
from urllib.parse import urlsplit

from threadpoolctl import threadpool_limits

from gossamer.deployment.ending import write_results
from gossamer.deployment.holding import DataHeld
from gossamer.deployment.joining import Invited, accept
from gossamer.deployment.loop import Clock, NodeLoop
from gossamer.deployment.neighbours import neighbours
from gossamer.deployment.party_options import PartyOptions
from gossamer.deployment.peers import Peers, PeerSettings
from gossamer.deployment.reporting import Reporter
from gossamer.deployment.state_folder import StateFolder, private_file
from gossamer.deployment.tasks import Tasks, Worker
from gossamer.errors import CallerError, GossamerError
from gossamer.federation.invitations import Invitation
from gossamer.protocol.trace import Step, write_step
from gossamer.runtimes.host import Host
from gossamer.runtimes.mqtt import BrokerAddress, MqttTransport, Tls, TransportSettings
from gossamer.runtimes.storage import SqliteStore
from gossamer.runtimes.storage_journal import Inputs

LARGEST_DATAGRAM = 1 << 20
"""Most bytes that the broker has to take."""
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
        invited = accept(options)
        folder = StateFolder(options.state)
        folder.take()
        stack.callback(folder.give_back)
        reporter = Reporter(invited, folder)
        try:
            return _run(options, invited, folder, reporter, stack)
        except GossamerError as error:
            reporter.ended("failed", str(error))
            raise


def _run(options: PartyOptions, invited: Invited, folder: StateFolder, reporter: Reporter, stack: ExitStack) -> str:
    """Everything that needs the state folder."""
    invitation, agreed = invited.agreed.terms.invitation, invited.agreed
    me = invitation.me.name
    store = SqliteStore(_store_file(options), invitation.run, me)
    stack.callback(store.close)
    sides = DataHeld(options, invited, folder)
    host = Host(
        agreed.nodes()[me],
        agreed.session,
        Inputs(store),
        watch=_watch(options.trace, stack),
        may_hear=agreed.may_hear,
    )
    reporter.begins(host)
    clock, near = Clock(), neighbours(agreed.prepared, me)
    settings = PeerSettings(
        heartbeat=options.gone_after / 20, silence=options.gone_after / 6, gone_after=options.gone_after
    )
    peers = Peers(
        invited.identity, invitation.run, me, invitation.members, settings, clock(), contacts=near, log=folder.say
    )
    limits = TransportSettings(connect_timeout=options.connect_timeout, largest_datagram=LARGEST_DATAGRAM)
    transport = MqttTransport(invitation.run, me, broker_address(options, invitation), limits, folder.say)
    folder.say(f"connects to {invitation.broker}")
    with transport:
        worker = Worker(Tasks(me, sides.computer), transport.wake)
        stack.callback(worker.stop)
        loop = NodeLoop(host, peers, worker, transport, folder, clock, options.wait, reporter.look)
        with _stopped_by_signals(loop):
            if not host.begun:
                loop.gather(near, options.wait)
            loop.run()
            if loop.stopping and folder.leaving:
                loop.leave("left")
            loop.farewell()
        transport.flush(_FLUSH)
    state = "stopped" if loop.stopping and not host.finished else "finished"
    write_results(folder, agreed, host, sides)
    reporter.ended(state, host.finished)
    return state


def broker_address(options: PartyOptions, invitation: Invitation) -> BrokerAddress:
    """Where the broker is, with the files for TLS that lie beside the invitation.

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
    files = [options.folder / name for name in ("ca.crt", "tls.crt", "tls.key")]
    missing = [str(file) for file in files if not file.is_file()]
    if missing:
        raise CallerError(
            f"the broker {invitation.broker} wants TLS, and there is no {', '.join(missing)}; put them beside the "
            "invitation"
        )
    return BrokerAddress(parts.hostname, parts.port, Tls(*files))


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
        # Raw models of units may be in it, so it is for nobody else to read.
        file = stack.enter_context(open(path, "ab", opener=private_file))
    except OSError as error:
        raise CallerError(f"{path}: cannot write the trace: {error.strerror}; choose another file") from None
    return lambda step: write_step(file, step)


@contextmanager
def _stopped_by_signals(loop: NodeLoop) -> Iterator[None]:
    """The first interrupt ends the loop after its turn; the second one is the usual."""
    before = {}

    def stop(signum: int, frame: FrameType | None) -> None:
        loop.stopping = True
        loop.transport.wake()
        for name, handler in before.items():
            signal.signal(name, handler)

    for name in (signal.SIGINT, signal.SIGTERM):
        before[name] = signal.signal(name, stop)
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
