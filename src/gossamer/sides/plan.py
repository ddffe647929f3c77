"""Plans of data sides as data: one value a party, fixed before the first release.

Each answers what it is charged for (`charges`), what it reveals (`revealed`), whom it trusts (`trusted`) and how many
numbers are drawn for it (`drawn`), so nobody has to ask for its kind but `making`, which opens data sides.

*Privacy unit.* Noise of `Samples` hides one example, as its kinds say; that of all others hides a client (or agent)
with all that it has. *Trust scope.* Whoever is in ``scope`` may hear what is raw; nobody else may. *Kind of release* is
the class. None of these follows from the others: a client's update may be raw inside a scope, or noised for everybody;
a curator is trusted with raw updates, and what it sends is for all.

Those of units are in `unit_plans`, those of clients in `client_plans`, each with its proofs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gossamer.privacy.guarantees import OTHER_NODES
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.releases import Counts
from gossamer.privacy.tasks import UPDATES, Query
from gossamer.sides.client_plans import ClientUpdate, Curator
from gossamer.sides.deployed_guarantee import Drawn
from gossamer.sides.ledger import Charges
from gossamer.sides.side_plan import (
    NOTHING_BOUNDED,
    WHOLE,
    Apart,
    Members,
    Revealed,
    SidePlan,
    Trust,
    Trusted,
    counts_of,
    drawn_for,
    most_drawn,
    most_of,
    of_kinds,
    of_sum,
)
from gossamer.sides.unit_plans import MaskedMember, Stream

__all__ = [
    "WHOLE",
    "ClientUpdate",
    "Curator",
    "MaskedMember",
    "Members",
    "Nothing",
    "Revealed",
    "Samples",
    "SidePlan",
    "Stream",
    "Trust",
    "Trusted",
    "counts_of",
    "most_of",
]


@dataclass(frozen=True)
class Samples:
    """Noisy sums over samples of the party's own examples.

    Attributes
    ----------
    kinds : mapping of ReleaseKind to int
        The most releases of each.
    enforced : bool
        Whether the ledger holds the party to them. Without noise there is nothing to hold to: all is admitted.
    queries : callable
        Function that makes what will be asked, to find out when a data side is opened whether its noise can be drawn.
    observer : str
        Observer that the noise protects an example from.
    """

    kinds: Counts
    enforced: bool = True
    queries: Callable[[], Iterable[Query]] = field(default=tuple, compare=False)
    observer: str = OTHER_NODES

    trusted = Trusted()

    def charges(self) -> Charges:
        return Charges(self.kinds, self.enforced, observer=self.observer)

    def revealed(self, trust: Trust) -> Revealed:
        return Revealed(partial(of_kinds, self.kinds)) if self.enforced else NOTHING_BOUNDED

    def apart(self, task: Any, relation: NeighboringRelation, shard: int) -> Apart:
        # Of local steps that are clipped one by one the later ones depend on the earlier; see `tasks.Round`.
        proved = task.query.sampling.proved and UPDATES.get(getattr(task, "update", ""), True)
        return of_sum(task.query, relation, most_drawn(task.query.sampling, shard), proved=proved)

    def said(self, who: str, often: str, examples: str) -> str:
        how = ", each one's part limited in length (the clip), with noise added" if self.enforced else ", without noise"
        return f"{who} releases {often} sums, each over {examples} of its examples drawn at random{how}."

    def drawn(self) -> Drawn:
        # A count of unclipped gradients is one number more.
        return drawn_for({kind: (kind.size + 1) * count for kind, count in self.kinds.items()}, self.kinds)


@dataclass(frozen=True)
class Nothing:
    """A party without data: there is nothing to ask it."""

    trusted = Trusted()

    def charges(self) -> None:
        return None

    def revealed(self, trust: Trust) -> Revealed:
        return Revealed(lambda order, relation: 0.0)

    def apart(self, task: Any, relation: NeighboringRelation, shard: int) -> None:
        return None

    def said(self, who: str, often: str, examples: str) -> str:
        return ""

    def drawn(self) -> Drawn:
        return Drawn()
