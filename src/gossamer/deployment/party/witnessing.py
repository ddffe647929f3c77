"""A party as a witness of its peers' receipts, and what they have seen that its own ledger has forgotten."""

from __future__ import annotations

from contextlib import ExitStack

from gossamer.algorithms.plan import hides_schedule
from gossamer.deployment.party.data_side import DataHeld
from gossamer.deployment.party.joining import Invited
from gossamer.deployment.party.state_folder import StateFolder
from gossamer.errors import CallerError
from gossamer.protocol.witnesses import PURPOSE, Witnesses
from gossamer.runtimes.storage.witnesses import WitnessFile

MEMORY = "witness.sqlite"
"""File in the state folder of what was seen of peers' receipts, and they of these."""


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
        With its receipts.
    stack : ExitStack
        Closes what is opened.
    """
    if hides_schedule(invited.agreed.plan):
        return None
    invitation = invited.agreed.terms.invitation
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
        After the neighbours were met.
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
