"""A party: from its invitation, its data and its owner's policy to a node that runs.

Nothing is joined, and no data are touched, before the policy has let the invitation pass; nothing is released before
the plan of the whole run is in the ledger of the data.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any

from threadpoolctl import threadpool_limits

from gossamer.deployment.founding.layout import CERTIFICATE
from gossamer.deployment.party.agreement import LARGEST_FRAME, Invited, PartyOptions, accept, check_newer
from gossamer.deployment.party.data_side import DataHeld
from gossamer.deployment.party.loop import LEFT, RENEWED, InvitationWatch, NodeLoop, Tasks, Worker, steady_clock
from gossamer.deployment.party.overview import Overview, told_of
from gossamer.deployment.party.reach import RECALL, Gathering, PeerReach, short
from gossamer.deployment.party.reporting import Reporter, write_results
from gossamer.deployment.party.state_folder import StateFolder
from gossamer.deployment.party.store import check_memory, check_receipts, fitting, is_stored, stored_node, witnesses_of
from gossamer.deployment.peers.peers import Peers, PeerSettings
from gossamer.deployment.peers.standing import LONGEST_HELLO
from gossamer.errors import CallerError, GossamerError
from gossamer.extras import installed_wheel
from gossamer.keys.invitations import Invitation
from gossamer.keys.orders import FILE as ORDERS
from gossamer.keys.orders import PAUSE, PAUSED, Orders
from gossamer.protocol.session import Link, LinkCounters, counters_of
from gossamer.protocol.transports import (
    BrokerUnreachable,
    Transport,
    TransportSettings,
    connection,
    slowness,
    with_times,
)
from gossamer.runtimes.host import Host

# The way to the others: a connection before anything is charged.


def connected(
    options: PartyOptions, invitation: Invitation, folder: StateFolder, reporter: Reporter
) -> Transport | None:
    """A connection to the broker; None if an interrupt came before there was one.

    Raises
    ------
    BrokerUnreachable
        If there was no connection for as long as it may take; nothing was charged.
    CallerError
        If a file is missing.
    """
    limits = TransportSettings(connect_timeout=options.connect_timeout)
    place = invitation.broker if options.broker is None else with_times(options.broker, invitation.broker)
    ends = place, invitation.run, invitation.me.name
    transport, stopping = connection(*ends, options.folder, options.key, limits, folder.warn), list[str]()

    def stop(why: str) -> None:
        stopping.append(why)
        transport.wake()

    try:
        with _stopped_by_signals(stop):
            reporter.connects()
            folder.say(f"connects to {ends[0]}")
            transport.open()
            reporter.connects("waiting")
    except BrokerUnreachable as error:
        if not stopping:
            store = "the store is as it was" if folder.kept else "no store was left"
            raise BrokerUnreachable(f"{error}; nothing was charged, and {store}") from None
    if not stopping:
        return transport
    transport.close()
    return None


_FINISHED, _STOPPED, _SHORT = "finished", "stopped", "short"
_BESIDE = 1 << 10  # bytes of a message beside its vector, about
_LAST_WORD = 2.0  # most seconds for which a node that failed looks for somebody to tell
_FLUSH = 5.0  # most seconds for the last datagrams to get to the broker


Beside = Callable[[StateFolder], AbstractContextManager[object]]
"""Makes, of a state folder that its node's process has, what is entered then and left when the node ends."""


def run_party(options: PartyOptions, beside: Beside | None = None) -> str:
    """Run a party's node until its part in the run is over, or it is stopped.

    Parameters
    ----------
    options : PartyOptions
        Options of the party.
    beside : callable, optional
        Whatever goes on beside the node, such as a page that shows it.

    Returns
    -------
    str
        ``stopped``, also while its peers had not finished yet; ``finished``; or ``short``: finished without all of its
        rounds, or while no peer took what it sent.

    Raises
    ------
    GossamerError
        With one line on why it cannot go on. A start that fails leaves no store and charges nothing.
    """
    with ExitStack() as stack:
        # Sums in BLAS depend on the number of threads; results must not, and peers may share the machine.
        stack.enter_context(threadpool_limits(1))
        folder = StateFolder(options.state, echo=not options.quiet)
        invited = accept(options, plans=partial(folder.say, "plans the run's noise, which may take minutes"))
        folder.named(invited.agreed.invitation.run, invited.agreed.me.name)
        stack.callback(folder.give_back)
        stack.callback(folder.forget)
        folder.take()
        if beside is not None:
            stack.enter_context(beside(folder))
        invited = fitting(options, invited, folder)
        wanted, here = invited.agreed.invitation.wheel_sha256, installed_wheel()
        if wanted not in (None, here):
            found = f"from that with sha256 {here}" if here else "from no such file"
            folder.warn(f"all are to install the wheel with sha256 {wanted}, and this installation is {found}")
        while (state := _take_part(options, invited, folder)) == RENEWED:
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
    except (GossamerError, OSError) as error:
        reporter.failed(str(error))
        raise


def _run(options: PartyOptions, invited: Invited, folder: StateFolder, reporter: Reporter, stack: ExitStack) -> str:
    """All that may refuse the start comes first, then the broker and the neighbours; and only then the ledger."""
    agreed, invitation = invited.agreed, invited.agreed.invitation
    slow = slowness(invitation.broker)
    options = replace(options, wait=slow * options.wait, gone_after=slow * options.gone_after)
    may_stop = None if invited.policy is None else invited.policy.organiser_may_stop
    orders = Orders(
        folder.path / ORDERS, invitation.run, invitation.organiser, invitation.me.name, may_stop, folder.warn
    )
    reporter.obeys(orders.said)
    folder.keeps.add(ORDERS)  # who has said that it knows one goes by it when it is started again
    there = is_stored(options, folder)
    # What is wrong with a store is known before anything is joined or charged, and no start that fails leaves one.
    host = stored_node(options, invited, folder, stack) if there else None
    begun = host is not None and host.begun  # or an earlier process was killed before it charged the plan
    if begun and options.rehearse:
        raise CallerError(f"{folder.path}: the node has begun, so there is nothing to rehearse; leave out --rehearse")
    if not begun and (why := orders.ends(begun=False)):
        reporter.ends_before(why)
        return _FINISHED
    held = DataHeld(options, invited, folder, begun=begun)
    stack.callback(held.close)
    transport = connected(options, invitation, folder, reporter)
    if transport is None:  # as one that waits for its peers: stopped, and it can go on
        reporter.ended(_STOPPED)
        return _STOPPED
    stack.callback(transport.close)
    clock, near = steady_clock(), agreed.prepared.contacts(invitation.me.name)
    witnesses = witnesses_of(invited, folder, held, stack)
    who = invited.identity, invitation.run, invitation.me.name, invitation.members
    times = options.gone_after / 20, options.gone_after / 6, options.gone_after
    settings = PeerSettings(*times, longest_hello=slow * LONGEST_HELLO)

    def counters(name: str) -> LinkCounters:
        return counters_of(None if host is None else host.session.links.get(name))

    known: dict[str, Any] = {"contacts": near, "counters": counters, "witnesses": witnesses, "orders": orders}
    peers = Peers(*who, settings, clock(), **known, log=folder.say, warn=folder.warn)
    objective, limit = agreed.prepared.objective, agreed.prepared.experiment.deployment.alone_seconds
    size = min(objective.size * objective.dtype.itemsize + _BESIDE, LARGEST_FRAME)

    def unreached(name: str) -> str:
        return transport.refusal(name) or (PAUSED if orders.newest[1] == PAUSE else "")

    ways = unreached, transport.reconnect
    reach = PeerReach(peers, size, limit, *ways, clock(), slow, transport.waits)
    overview = Overview(invited, reporter.status, clock(), folder.say, orders)

    def tells_end(state: str, why: str, patience: float = 0.0) -> None:
        due, until = overview.ends(state, why, clock()), clock() + patience
        while True:
            for to, datagram in due:
                transport.send(to, datagram)
            if not transport.connected or overview.is_heard(clock()) or clock() >= until:
                break
            came = transport.receive(0.1)
            answers = [] if came is None or not overview.watches(came.sender) else overview.open(*came[:2], clock())[1]
            due = [*answers, *overview.wake(clock())]
        transport.flush(_FLUSH)

    def tells_failure(kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, GossamerError | OSError):
            tells_end("failed", told_of(error), _LAST_WORD)

    stack.push(tells_failure)
    before = partial(orders.ends, begun=begun)
    gathering = Gathering(peers, transport, folder, clock, reach, overview=overview, ends=before, pauses=orders.pauses)
    stopping = _meet(options, gathering, near, host, reporter, objective.size * objective.dtype.itemsize)
    check_receipts(witnesses, invitation.me.name)
    if stopping and not begun:
        if why := before():
            reporter.ends_before(why)
            tells_end(_FINISHED, "")
            return _FINISHED
        tells_end(_STOPPED, "")
        reporter.ended(_STOPPED)
        return _STOPPED  # before it began: this process leaves nothing
    host = host or stored_node(options, invited, folder, stack)
    over = bool(host.finished)  # an earlier process has said how its part ended
    held.charge()
    folder.kept = True
    held.open()
    reporter.begins(host, held)
    worker = Worker(Tasks(invitation.me.name, held.computer), transport.wake)
    stack.callback(worker.stop)
    ends = peers, transport, folder, clock, reach, host, worker
    loop = NodeLoop(*ends, options.wait, options.gone_after, overview=overview)
    loop.ends = lambda: orders.ends() or ("" if host.finished else orders.pauses())
    loop.serves, loop.stopping, loop.look = not agreed.holds_data, stopping, partial(reporter.look, loop)
    loop.newer = InvitationWatch(options.file, invitation, folder.warn).look
    with _stopped_by_signals(loop.stop):
        loop.run()
        if loop.stopping:
            loop.settle()
        if loop.stopping == _STOPPED and folder.leaving:
            loop.leave(LEFT)
        elif (why := orders.ends()) and not host.finished:
            loop.leave(why)
    loop.farewell()
    transport.flush(_FLUSH)
    if loop.stopping in (RENEWED, PAUSED):
        return RENEWED  # and waits before it goes on
    worker.stop()  # what it still charged would have no receipt below
    reporter.write(loop, clock())
    due = host.finished and not orders.ends()  # an order may end it while others have no use for it any more
    alone = reach.ended(host.session.links, clock()) if due and not over else ""
    why = alone or ((short(host.node) or reporter.short_above()) if due else "")
    state = _FINISHED if host.finished else _STOPPED
    tells_end(state, why)
    transport.close()  # how long this party trains and tests for itself is nobody else's business
    results = write_results(folder, held.agreed, host, held, alone)
    reporter.ended(state, why, results["privacy"] if host.finished else {})
    if loop.stopping == _STOPPED and not folder.leaving:  # also while it only waits for the others
        return _STOPPED
    return _SHORT if why else state


def _meet(
    options: PartyOptions,
    gathering: Gathering,
    near: tuple[str, ...],
    host: Host | None,
    reporter: Reporter,
    model: int,
) -> str:
    """Meet the neighbours, and hear what they know of this node; why the node is to stop, if it is."""
    links: Mapping[str, Link] = {} if host is None else host.session.links

    def look(now: float) -> None:
        reporter.waits(gathering, now, gathering.lacking(near, model) if options.rehearse else None)

    gathering.look = look
    with _stopped_by_signals(gathering.stop):
        if options.rehearse:
            gathering.rehearse(near)
        elif host is None or not host.begun:
            gathering.gather(near, options.wait)
        elif not host.finished:
            gathering.gather(
                [name for name in near if name in links],
                min(RECALL * gathering.reach.slowness, options.wait),
                recalls=True,
            )
    if not options.believe_store:
        check_memory(links, gathering.peers, options.state)
    return gathering.stopping


@contextmanager
def _stopped_by_signals(end: Callable[[str], None]) -> Iterator[None]:
    """The first interrupt ends the loop, or the waiting, after its turn; the second one is the usual."""
    before: dict[signal.Signals, Any] = {}

    def stop(signum: int, frame: FrameType | None) -> None:
        end(_STOPPED)
        for name, handler in before.items():
            signal.signal(name, handler)

    for name in (signal.SIGINT, signal.SIGTERM):
        before[name] = signal.signal(name, stop)
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
