"""A party's node as its store has it: opened, handed on to a newer invitation, and copied."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

from gossamer.deployment.founding.federation_spec import own_code
from gossamer.deployment.party.agreement import Agreed, Invited, PartyOptions, accept, check_newer
from gossamer.deployment.party.data_side import FORMAT as SIDE
from gossamer.deployment.party.data_side import UNIT_LEDGER
from gossamer.deployment.party.reach import MEMORY
from gossamer.deployment.party.state_folder import STORE, StateFolder, opened
from gossamer.errors import CallerError, GossamerError
from gossamer.files import make_own_folder, named
from gossamer.keys.errors import InvitationError
from gossamer.keys.invitations import Invitation, content_of, parse_signed
from gossamer.protocol.trace import TraceStep, check_is_trace, whole_steps, write_step
from gossamer.runtimes.host import Host
from gossamer.runtimes.storage.file import File
from gossamer.runtimes.storage.ledger import FORMAT as LEDGER
from gossamer.runtimes.storage.store import FORMAT as NODE
from gossamer.runtimes.storage.store import WITNESS_FORMAT, SqliteStore

# Copies of a node's state folder, such as to move it to another machine: whole, with what is in logs only.

_SEALED = {STORE: NODE, MEMORY: WITNESS_FORMAT, UNIT_LEDGER: LEDGER, "side.sqlite": SIDE}
_LEFT = ("lock", "live-address", "leave")


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
        for path in sorted(state.iterdir()):
            if path.name in _SEALED:
                with closing(File(path, _SEALED[path.name], {}, alone=True)) as file:
                    file.back_up(out / path.name)
            elif path.name not in _LEFT and not path.name.startswith(tuple(f"{name}-" for name in _SEALED)):
                shutil.copy2(path, out / path.name)
    except OSError as error:
        shutil.rmtree(out, ignore_errors=True)
        raise CallerError(
            f"{error.filename or out}: cannot be copied: {error.strerror}; make room, or name another folder"
        ) from None
    except CallerError:
        shutil.rmtree(out, ignore_errors=True)
        raise
    finally:
        folder.give_back()


# A run whose invitation is issued again, because somebody joins or because the old one expires.
#
# A node's journal only makes sense to the node that wrote it. So the first thing that a node does under a newer
# invitation is to come back as it was under the old one, and to keep all that it holds as plain data: the newer node
# takes that over, tells its neighbours that it was away, and asks its data side again. The text of the invitation by
# which the store was written lies beside it.

RECORD = "invitation.yaml"
"""In the state folder: the invitation by which the store was written."""
_EVERY = 2.0  # seconds between two looks at the file of the invitation


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
    if before is not None and before != invited.text:
        _hand_over(parse_signed(before), invited.agreed, store)
        folder.say("goes on by a newer invitation")
    if before != invited.text:
        folder.write(RECORD, invited.text)
    return invited.agreed.host(store, watch)


def _recorded(folder: StateFolder) -> bytes | None:
    """Invitation by which the store was written, if there is one."""
    record = folder.path / RECORD
    if not record.exists():
        return None
    content = content_of(record)
    try:
        parse_signed(content)
    except InvitationError:
        raise CallerError(
            f"{record}: expected this node's own copy of the invitation that it last ran by, found an empty or damaged "
            "file, as a power cut can leave it; copy that invitation there, which is the party's own unless it was "
            "replaced since"
        ) from None
    return content


def _hand_over(before: Invitation, agreed: Agreed, store: SqliteStore) -> None:
    """Have the store hold a snapshot that the node of the newer invitation can begin from."""
    earlier = _agreed_before(before, agreed)
    check_newer(earlier, agreed)
    earlier.host(store).checkpoint()


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
    text = _recorded(folder)
    if text is None or text == invited.text:
        return invited
    before, new = parse_signed(text), invited.agreed.invitation
    if (before.run, before.organiser) != (new.run, new.organiser) or new.issued < before.issued:
        return invited  # for `open_host` to refuse
    try:
        check_newer(_agreed_before(before, invited.agreed), invited.agreed)
    except InvitationError as error:
        folder.warn(f"does not accept the newer invitation, and goes on by the old one: {error}")
        return accept(options, folder.path / RECORD)
    return invited


class InvitationWatch:
    """Looks for a newer invitation in the place of the one that a node runs by.

    Parameters
    ----------
    path : Path
        The file.
    current : Invitation
        Invitation that it held.
    say : callable
        Takes a line.
    """

    def __init__(self, path: Path, current: Invitation, say: Callable[[str], None]) -> None:
        self._path, self._current, self._say = path, current, say
        self._seen, self._next = self._stamp(), 0.0

    def look(self, now: float) -> bool:
        """Whether there is one."""
        if now < self._next:
            return False
        self._next = now + _EVERY
        if (stamp := self._stamp()) == self._seen:
            return False
        self._seen = stamp
        try:
            found = parse_signed(content_of(self._path), self._current.organiser.fingerprint)
        except (OSError, GossamerError) as error:
            self._say(f"{self._path} has changed, and is no invitation any more: {error}; goes on by the old one")
            return False
        return found.run == self._current.run and found.issued > self._current.issued

    def _stamp(self) -> tuple[float, int]:
        try:
            status = self._path.stat()
        except OSError:
            return 0.0, 0
        return status.st_mtime, status.st_size


def is_stored(options: PartyOptions, folder: StateFolder) -> bool:
    """Whether there is a store of the node."""
    return _store_file(options).exists() or (folder.path / RECORD).exists()


def stored_node(options: PartyOptions, invited: Invited, folder: StateFolder, stack: ExitStack) -> Host:
    """The node as its store has it, which is made if there is none; ``stack`` closes what is opened."""
    invitation = invited.agreed.invitation
    store = SqliteStore(_store_file(options), invitation.run, invitation.me.name, invited.state_key)
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
    try:
        check_is_trace(path)
        # Raw models of units may be in it, so it is for nobody else to read. Each step is written at once.
        file = stack.enter_context(opened(path, buffering=0))
        with path.open("rb") as before:
            file.truncate(whole_steps(before))
    except OSError as error:
        raise CallerError(f"{path}: cannot write the trace: {error.strerror}; choose another file") from None

    def write(step: TraceStep) -> None:
        with named(path):
            write_step(file, step)

    return write
