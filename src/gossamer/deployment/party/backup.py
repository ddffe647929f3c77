"""Copies of a node's state folder, such as to move it to another machine: whole, with what is in logs only."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

from gossamer.deployment.party.data_side import UNIT_LEDGER
from gossamer.deployment.party.side_file import FORMAT as SIDE
from gossamer.deployment.party.state_folder import STORE, StateFolder
from gossamer.deployment.party.witnessing import MEMORY
from gossamer.errors import CallerError
from gossamer.files import make_own_folder
from gossamer.runtimes.storage.account import FORMAT as LEDGER
from gossamer.runtimes.storage.file import File
from gossamer.runtimes.storage.store import FORMAT as NODE
from gossamer.runtimes.storage.witnesses import FORMAT as WITNESS

_SEALED = {STORE: NODE, MEMORY: WITNESS, UNIT_LEDGER: LEDGER, "side.sqlite": SIDE}
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
