"""A party's node as its store has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from gossamer.deployment.party.joining import Invited
from gossamer.deployment.party.options import PartyOptions
from gossamer.deployment.party.renewing import RECORD, open_host
from gossamer.deployment.party.state_folder import STORE, StateFolder, opened
from gossamer.errors import CallerError
from gossamer.files import named
from gossamer.protocol.link import Link
from gossamer.protocol.trace import Step, check_is_trace, whole_steps, write_step
from gossamer.runtimes.host import Host
from gossamer.runtimes.storage.store import SqliteStore


class Stored:
    """The node as its store has it, if there is one; made when the node begins, so that no start that fails leaves one.

    Parameters
    ----------
    options, invited, folder
        Of the party.
    stack : ExitStack
        Closes what is opened.
    """

    def __init__(self, options: PartyOptions, invited: Invited, folder: StateFolder, stack: ExitStack) -> None:
        self._options, self._invited, self._folder, self._stack = options, invited, folder, stack
        self._host: Host | None = None
        self.there = _store_file(options).exists() or (folder.path / RECORD).exists()
        if self.there:  # what is wrong with it is known before anything is joined or charged
            self.host()

    def host(self) -> Host:
        """The node; from now on there is a store."""
        if self._host is None:
            invitation = self._invited.agreed.terms.invitation
            store = SqliteStore(_store_file(self._options), invitation.run, invitation.me.name, self._invited.state_key)
            self._stack.callback(store.close)
            self._host = open_host(self._invited, self._folder, store, _watch(self._options.trace, self._stack))
        return self._host

    @property
    def begun(self) -> bool:
        """Whether the node has begun in an earlier process."""
        return self._host is not None and self._host.begun

    @property
    def finished(self) -> bool:
        """Whether it makes no more updates."""
        return self._host is not None and bool(self._host.finished)

    @property
    def links(self) -> Mapping[str, Link]:
        """Session of the node, by peer."""
        return {} if self._host is None else self._host.session.links


def _store_file(options: PartyOptions) -> Path:
    file = options.state / STORE
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
        check_is_trace(path)
        # Raw models of units may be in it, so it is for nobody else to read. Each step is written at once.
        file = stack.enter_context(opened(path, buffering=0))
        with path.open("rb") as before:
            file.truncate(whole_steps(before))
    except OSError as error:
        raise CallerError(f"{path}: cannot write the trace: {error.strerror}; choose another file") from None

    def write(step: Step) -> None:
        with named(path):
            write_step(file, step)

    return write
