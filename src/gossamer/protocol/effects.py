"""Effects that a node can ask for. It does nothing itself; the runtime it lives in carries them out, in order."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from gossamer.protocol.encoding import value
from gossamer.protocol.messages import Message
from gossamer.vectors import Confined, Model, Released, Values


@runtime_checkable
class Task(Protocol):
    """Request to a data side; ``id`` is unique within the node and comes back in the answer.

    Each kind also says how many of a node's seconds it takes (``steps``; 0 is no update), of what size, ``dtype`` and
    ``label`` its answer is, where nothing else is planned, and to what its noise is added (``base``, 0 if to a sum);
    whether newer models may be swapped into it while it runs (``amendable``), and whether its answer is ``kept``:
    asked for again, it is the same bytes.
    """

    @property
    def id(self) -> int: ...


@value("task.release")
class Release:
    """Task of a data side that adds the next noise of the node's stream to ``vector``, a state that the node keeps raw.

    The stream and the number of its records are fixed before the run. Ids are the numbers of the records: 0, 1, ... in
    order. The id that was answered last may be asked for again, with the same vector, and is answered with the same
    bytes.
    """

    id: int
    vector: Model | Confined

    steps = 0
    label = Released
    amendable, kept = False, True

    @property
    def answer_size(self) -> int:
        """The count of numbers in the answer."""
        return self.vector.size

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The type of the answer's numbers."""
        found: np.dtype[np.generic] = self.vector.values.dtype
        return found

    @property
    def base(self) -> Values:
        """Numbers [size] that the noise is added to."""
        return self.vector.values


class Effect:
    """Base of all effects."""

    __slots__ = ()


@value("effect.send")
class Send(Effect):
    """Send ``message`` to the node named ``to``."""

    to: str
    message: Message


@value("effect.compute")
class Compute(Effect):
    """Give ``task`` to the data side, which answers with `Completed` or `Refused`."""

    task: Task


@value("effect.update")
class Update(Effect):
    """Swap ``model`` into the running round ``task``, which may now take ``until`` steps in all.

    The round goes on at the new model after the steps that it has done. It waits when it has done ``until`` steps,
    which never fall. Nothing happens to a task that is not running: it may have just been completed.
    """

    task: int
    model: Model
    until: int


@value("effect.interrupt")
class Interrupt(Effect):
    """Have the running round ``task`` answer now, with the steps done so far; nothing happens if it is not running."""

    task: int


Request = Compute | Update | Interrupt
"""Effects for the node's data side."""


@value("effect.set_timer")
class SetTimer(Effect):
    """Deliver ``Elapsed(name)`` in ``after`` seconds; replaces a timer of the same name."""

    after: float
    name: str


@value("effect.cancel_timer")
class CancelTimer(Effect):
    """Forget the timer ``name``, if it is set."""

    name: str


@value("effect.record")
class Record(Effect):
    """Write a number to the node's own private log."""

    name: str
    value: float


@value("effect.reject")
class Reject(Effect):
    """Count what ``sender`` sent as refused, for ``reason``, though this node goes on from it.

    Where nothing is to change, raise `PeerError` instead; to the sender's standing it is the same.
    """

    sender: str
    reason: str


@value("effect.finish")
class Finish(Effect):
    """The node makes no more updates of its own. It goes on answering others."""

    reason: str
