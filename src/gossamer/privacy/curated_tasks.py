"""Questions to a curator: a server that clients trust, which adds the noise to sums of their updates.

Whose updates are summed is public, or drawn by the curator in secret (`Cohort`): then nobody else knows who is in a
sum, and each release reveals less of everybody.
"""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.errors import SpecError
from gossamer.numbers import whole_number
from gossamer.privacy.tasks import AtModel, Query
from gossamer.protocol.encoding import register
from gossamer.vectors import Confined, Model, Released


@register("task.cohort")
@dataclass(frozen=True)
class Cohort(AtModel):
    """The clients of one sum, drawn by coins that nobody else learns; it takes no time.

    All clients are charged for the sum, in the cohort or not, before it is drawn. The answer has a number for each
    client, in the plan's order: 1 for those who are in it, 0 for all others.

    Attributes
    ----------
    id : int
        Unique within the node.
    model : vector
        Model that the cohort is to start from.
    clients : int
        How many there are.
    query : Query
        Of the sum: its sampling is that of the clients.

    Raises
    ------
    SpecError
        If the number of clients is none.
    """

    id: int
    model: Model
    clients: int
    query: Query

    steps = 0
    label = Confined

    def __post_init__(self) -> None:
        if not whole_number(self.clients):
            raise SpecError(f"a cohort is drawn of a whole number of clients, 1 or more, found {self.clients!r}")

    @property
    def answer_size(self) -> int:
        """The count of numbers in the answer."""
        return self.clients


@register("task.curated_sum")
@dataclass(frozen=True)
class CuratedSum(AtModel):
    """The noisy sum of clients' raw updates, which a curator is asked for; it takes no time.

    If its query asks for a count, a number more comes after the sum: (sum of b_i - 1/2 + noise) / normaliser, with b_i
    1 for an update shorter than the clip and 0 for one that was clipped to it; see `gossamer.privacy.clipping`.

    Attributes
    ----------
    id : int
        Unique within the node.
    model : vector
        Model that the sum is a step of: it has as many numbers, of the same type.
    updates : tuple of (str, vector)
        By client, each once.
    query : Query
        Its mechanism has the bound on updates, and the noise; its normaliser is public.
    cohort : int, optional
        Id of the `Cohort` that the clients were drawn in, which is summed once; None where they are public.

    Raises
    ------
    SpecError
        If a client is in it twice, a vector has another size, or the cohort has no number.
    """

    id: int
    model: Model
    updates: tuple[tuple[str, Model | Confined], ...]
    query: Query
    cohort: int | None = None

    steps = 0
    label = Released

    def __post_init__(self) -> None:
        if len({name for name, _ in self.updates}) < len(self.updates):
            raise SpecError(f"each client is in a sum once, found {[name for name, _ in self.updates]}")
        if any(update.size != self.model.size for _, update in self.updates):
            raise SpecError(f"updates of a sum have {self.model.size} numbers, found others")
        if self.cohort is not None and whole_number(self.cohort) is None:
            raise SpecError(f"a cohort has a number, 0 or more, found {self.cohort!r}")

    @property
    def answer_size(self) -> int:
        """The count of numbers in the answer."""
        return self.model.size + (1 if self.query.count_share else 0)

    @property
    def owners(self) -> tuple[str, ...]:
        """The clients whose updates are in it."""
        return tuple(name for name, _ in self.updates)
