"""Store of a party's node: made, opened, backed up, and believed only if no peer knows of more (--believe-store).

Any node hears what its peers know of the messages between them: a store that has forgotten some of these is an older
copy, or another one, and with it the node would release anew what it has released, and be refused by its peers.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

from gossamer.deployment.founding.federation_spec import own_code
from gossamer.deployment.party.agreement import Agreed, Invited, PartyOptions, accept, check_newer
from gossamer.deployment.party.data_side import FORMAT as SIDE
from gossamer.deployment.party.data_side import UNIT_LEDGER, DataHeld
from gossamer.deployment.party.state_folder import STORE, StateFolder, opened
from gossamer.deployment.peers.peers import Peers
from gossamer.errors import CallerError, failing_as
from gossamer.files import make_own_folder, named
from gossamer.keys.invitations import Invitation, InvitationError, content_of, parse_signed
from gossamer.protocol.session import Link, forgotten
from gossamer.protocol.trace import TraceStep, check_is_trace, whole_steps, write_step
from gossamer.protocol.witnesses import PURPOSE, Witnesses
from gossamer.runtimes.host import Host
from gossamer.runtimes.storage.file import File
from gossamer.runtimes.storage.ledger import FORMAT as LEDGER
from gossamer.runtimes.storage.store import FORMAT as NODE
from gossamer.runtimes.storage.store import WITNESS_FORMAT, SqliteStore, WitnessFile

# A run whose invitation is issued again, because somebody joins or because the old one expires.
#
# A node's journal only makes sense to the node that wrote it. So the first thing that a node does under a newer
# invitation is to come back as it was under the old one, and to keep all that it holds as plain data: the newer node
# takes that over, tells its neighbours that it was away, and asks its data side again. The text of the invitation by
# which the store was written lies beside it.

RECORD = "invitation.yaml"
"""In the state folder: the invitation by which the store was written."""


def open_host(
    invited: Invited, folder: StateFolder, store: SqliteStore, watch: Callable[[TraceStep], None] | None
) -> Host:
    """The node of this party, as its store has it.

    Parameters
    ----------
    invited : Invited
        Party by the invitation of today.
    folder : StateFolder
        Taken by this process.
    store : SqliteStore
        Store of this node.
    watch : callable or None
        Callable that sees each step, as of `Host`.

    Raises
    ------
    CallerError
        If the store was written by an invitation that is newer, or that differs in more than who takes part.
    """
    before = _recorded(folder)
    text = invited.agreed.invitation.written
    if before is None or before.written != text:
        if before is not None:
            # The store is to hold a snapshot that the node of the newer invitation can begin from.
            earlier = _agreed_before(before, invited.agreed)
            check_newer(earlier, invited.agreed)
            earlier.host(store).checkpoint()
            folder.say("goes on by a newer invitation")
        folder.write(RECORD, text)
    return invited.agreed.host(store, watch)


def _recorded(folder: StateFolder) -> Invitation | None:
    """Invitation by which the store was written, if there is one."""
    record = folder.path / RECORD
    if not record.exists():
        return None
    content = content_of(record)
    try:
        return parse_signed(content)
    except InvitationError:
        raise CallerError(
            f"{record}: expected this node's own copy of the invitation that it last ran by, found an empty or damaged "
            "file, as a power cut can leave it; copy that invitation there, which is the party's own unless it was "
            "replaced since"
        ) from None


def _agreed_before(before: Invitation, agreed: Agreed) -> Agreed:
    """Terms and plan by an invitation that was accepted then, and may have expired since."""
    # Its code is allowed; the spec may not have had other.
    start = agreed.experiment.objective.pretrained
    return Agreed.by(before, own_code(agreed.experiment), None if start is None else start.path)


def fitting(options: PartyOptions, invited: Invited, folder: StateFolder) -> Invited:
    """Invitation by which a node goes on: that of today, or the one before, if what is in the store does not fit it.

    Raises
    ------
    InvitationError
        If the newer one does not fit, and the one before has expired.
    """
    before, new = _recorded(folder), invited.agreed.invitation
    if before is None or before.written == new.written:
        return invited
    if (before.run, before.organiser) != (new.run, new.organiser) or new.issued < before.issued:
        return invited  # for `open_host` to refuse
    try:
        check_newer(_agreed_before(before, invited.agreed), invited.agreed)
    except InvitationError as error:
        folder.warn(f"does not accept the newer invitation, and goes on by the old one: {error}")
        return accept(options, folder.path / RECORD)
    return invited


def is_stored(options: PartyOptions, folder: StateFolder) -> bool:
    """Whether there is a store of the node."""
    return _store_file(options).exists() or (folder.path / RECORD).exists()


def stored_node(options: PartyOptions, invited: Invited, folder: StateFolder, stack: ExitStack) -> Host:
    """The node as its store has it, which is made if there is none; ``stack`` closes what is opened."""
    invitation, objective = invited.agreed.invitation, invited.agreed.prepared.objective
    whose = invitation.run, invitation.me.name, invited.state_key
    store = SqliteStore(_store_file(options), *whose, model=objective.size * objective.dtype.itemsize)
    stack.callback(store.close)
    return open_host(invited, folder, store, _watch(options.trace, stack))


def _store_file(options: PartyOptions) -> Path:
    file = options.state / STORE
    if file.exists() and not options.resume:
        raise CallerError(
            f"{file}: an earlier process of this node has been there; a node that forgets its part is refused by its "
            "peers, so go on with it (leave out --no-resume), or give another --store for another run"
        )
    return file


def _watch(path: Path | None, stack: ExitStack) -> Callable[[TraceStep], None] | None:
    if path is None:
        return None
    with failing_as(CallerError, f"{path}: cannot write the trace: ", "; choose another file"):
        check_is_trace(path)
        # Raw models of units may be in it, so it is for nobody else to read. Each step is written at once.
        file = stack.enter_context(opened(path, buffering=0))
        with path.open("rb") as before:
            file.truncate(whole_steps(before))

    def write(step: TraceStep) -> None:
        with named(path):
            write_step(file, step)

    return write


# Copies of a node's state folder, such as to move it to another machine: whole, with what is in logs only.

MEMORY = "witness.sqlite"
"""File in the state folder of what was seen of peers' receipts, and they of these."""
_SEALED = {STORE: NODE, MEMORY: WITNESS_FORMAT, UNIT_LEDGER: LEDGER, "side.sqlite": SIDE}
_NOT_COPIED = ("lock", "live-address", "leave")


def back_up(state: Path, out: Path) -> None:
    """Copy the state folder of a node that does not run to a folder that does not exist yet.

    Raises
    ------
    CallerError
        If there is no node, one runs, or the copy cannot be made.
    StorageError
        If a file is not what was written.
    """
    if not (state / STORE).exists():
        raise CallerError(f"{state}: no node has begun here, since there is no {STORE}; give a node's --store")
    if out.exists():
        raise CallerError(f"{out} exists already; name a folder that does not")
    folder = StateFolder(state)
    folder.take()
    try:
        make_own_folder(out)
        for path in sorted(path for path in state.iterdir() if path.is_file()):
            if path.name in _SEALED:
                with closing(File(path, _SEALED[path.name], {}, alone=True)) as file:
                    file.back_up(out / path.name)
            elif path.name not in _NOT_COPIED and not path.name.startswith(tuple(f"{name}-" for name in _SEALED)):
                shutil.copy2(path, out / path.name)
    except (OSError, CallerError) as error:
        shutil.rmtree(out, ignore_errors=True)
        if isinstance(error, CallerError):
            raise
        where = error.filename or out
        raise CallerError(f"{where}: cannot be copied: {error.strerror}; make room, or name another folder") from None
    finally:
        folder.give_back()


# A party as a witness of its peers' receipts, and what they have seen that its own ledger has forgotten.


class OlderLedger(CallerError):
    """The ledger has forgotten what peers have countersigned."""


def witnesses_of(invited: Invited, folder: StateFolder, held: DataHeld, stack: ExitStack) -> Witnesses | None:
    """The witnesses of a run; None where numbers of releases are to be kept secret, and nobody is told of any.

    Parameters
    ----------
    invited : Invited
        The party.
    folder : StateFolder
        Taken.
    held : DataHeld
        Data side with its receipts.
    stack : ExitStack
        Closes what is opened.
    """
    if invited.agreed.plan.hides_schedule:
        return None
    invitation = invited.agreed.invitation
    memory = WitnessFile(folder.path / MEMORY, invitation.run, invitation.me.name, invited.state_key)
    stack.callback(memory.close)
    keys = {member.name: member.key for member in invitation.members}
    found = Witnesses(
        invitation.run,
        invitation.me.name,
        memory,
        sign=lambda content: invited.identity.sign(PURPOSE, content),
        signed=lambda peer, signature, content: keys[peer].signed(signature, PURPOSE, content),
        own=held.receipts,
    )
    stack.callback(found.keep)  # before the file is closed
    return found


def check_receipts(witnesses: Witnesses | None, name: str) -> None:
    """Compare a ledger with what was countersigned of it, before anything is charged; nothing overrules that.

    Parameters
    ----------
    witnesses : Witnesses or None
        Witnesses, after the neighbours were met.
    name : str
        The party.

    Raises
    ------
    OlderLedger
        If the ledger has forgotten something.
    """
    lines = [] if witnesses is None else witnesses.forgotten()
    if lines:
        raise OlderLedger(
            f"{name}: this is not the newest ledger: {'; '.join(lines)}, so it is a backup, or another one, and with "
            "it the node would release again what it has released; nothing was charged. Put the newest ledger back; "
            "if it is lost, the node's part in this run is over, and the others go on without it. --believe-store "
            "overrules none of this; if the peer lies, found the federation anew without it"
        )


class OlderStore(CallerError):
    """The store has forgotten what peers know of this node."""


def check_memory(links: Mapping[str, Link], peers: Peers, state: Path) -> None:
    """Compare a store with what its peers know.

    Raises
    ------
    OlderStore
        If the store has forgotten something.
    """
    if lost := forgotten(links, peers.counters()):
        known = "; ".join(f"{name} {what}" for name, what in lost.items())
        raise OlderStore(
            f"{state}: this is not the newest state of the node: {known} "
            "than the store holds, so it is a backup, or a new one; nothing was charged. Put the newest state back, or "
            "name it by --store; if it is lost, the node's part in this run is over, and the others go on without it "
            "(--believe-store, if you know that these peers are wrong)"
        )
