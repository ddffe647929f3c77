"""The exception tree, ordered by whose fault it was.

    GossamerError
    ├── CallerError (also ValueError)   the caller's mistake: a spec, a file, an argument
    │   ├── SpecError                   an unknown key, a wrong type, a contradiction
    │   ├── DataError                   a missing file, a malformed line, a value out of range
    │   ├── TopologyError               a graph or mixing matrix that cannot carry the algorithm
    │   ├── ModelError                  a module that cannot be trained privately
    │   ├── AccountingError             a combination no accountant here is proved for
    │   └── BudgetUnreachable           no noise within reason meets the budget
    ├── PeerError                       a peer sent what the protocol does not allow
    │   └── MalformedMessage            bytes that do not decode to a known message
    ├── TooFewAgents                    too few are left for a masked sum
    └── BudgetSpent                     the ledger refuses a release

Every message says what was expected, what was found, and what to do. A failed ``assert`` in this library
is a bug of ours, never one of these.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

ENDED_SHORT = 4
"""Exit code of a run, or of a party's part in one, that is over and did not come to the end of its plan."""


def did_you_mean(found: str, options: Iterable[str]) -> str:
    """The end of an error message about an unknown name: the nearest of ``options``, or all of them."""
    names = sorted(options)
    close = difflib.get_close_matches(found, names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; expected one of {', '.join(names)}" if names else ""


def counted(number: int, one: str, many: str | None = None, *, form: str = "") -> str:
    """``1 round``, ``2 rounds``: a number, in the given format, with its noun, whose plural has an s unless given."""
    return f"{number:{form}} {one if number == 1 else many or one + 's'}"


def shortened(found: object, most: int = 60) -> str:
    """Text of what was found, as Python writes it, and no more of it than a line can take."""
    text = repr(found)
    return text if len(text) <= most else f"{text[:most]}..."


class GossamerError(Exception):
    """Base of every error this library raises on purpose."""

    exit_code = 1


class CallerError(GossamerError, ValueError):
    """The caller asked for something that cannot be done; the message says what can."""

    exit_code = 2


class SpecError(CallerError):
    """An experiment's spec has an unknown key, a wrong type or a contradiction."""


class DataError(CallerError):
    """Data is missing, malformed, not finite, or too small for what is asked of it."""


class TopologyError(CallerError):
    """A graph or mixing matrix does not satisfy what the algorithm needs."""


class ModelError(CallerError):
    """A module cannot be trained with per-example gradients."""


class AccountingError(CallerError):
    """A mechanism, sampling scheme and neighbouring relation that no accountant here is proved for."""


class BudgetUnreachable(CallerError):
    """No noise multiplier within reason meets the privacy budget."""


class PeerError(GossamerError):
    """A peer broke the protocol. Nothing of ours changes because of it."""


class MalformedMessage(PeerError):
    """Bytes from the network are not an encoding of a known message."""


class TooFewAgents(GossamerError):
    """Fewer agents are left than a masked sum needs; nothing is unmasked."""


class BudgetSpent(GossamerError):
    """The ledger refuses a release that its plan or budget does not cover."""

    exit_code = 3


class RunWarning(UserWarning):
    """A run is possible, but is unlikely to be what was meant."""
