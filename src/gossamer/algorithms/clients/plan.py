"""The plan of a run whose clients train, and in which the privacy unit is a client with all that it has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from gossamer.algorithms.node_plan import EVERYBODY, NodePlan
from gossamer.algorithms.words import Words
from gossamer.errors import counted
from gossamer.privacy.accounting.accountants import epsilon
from gossamer.privacy.guarantees import Guarantee
from gossamer.privacy.releases import Counts
from gossamer.sides.client_guarantees import CURATOR, OTHERS
from gossamer.sides.deployed_guarantee import Drawn
from gossamer.sides.plan import Curator, Nothing, SidePlan

_ALIKE = (
    "These figures are the same for all clients: the server's noise covers each for as many sums as the client that "
    "may be in most, so one that is in fewer has spent less."
)


@dataclass(frozen=True, kw_only=True)
class ClientPlan(NodePlan):
    """The plan of a run of clients, each of which clips its own updates.

    Attributes
    ----------
    sides : dict of str to SidePlan
        What leaves each client: every update, noised by itself, or raw for its server alone; and of a server that adds
        the noise, its sums.
    most : dict of str to int
        The most releases with the data of each client.
    curator : Curator or None
        What the server releases, where it adds the noise.
    against_curator : Guarantee or None
        What is proved against that server: nothing, in words.
    sums : int
        How many sums it releases.
    """

    sides: dict[str, SidePlan]
    most: dict[str, int]
    curator: Curator | None = None
    against_curator: Guarantee | None = None
    sums: int = 0

    called = "client"
    timed = False
    """All updates take as many examples."""

    @property
    def guarantees(self) -> dict[str, Guarantee]:
        """By observer: everybody, or all but a server that is trusted."""
        if self.against_curator is None:
            return {EVERYBODY: self.guarantee}
        return {OTHERS: self.guarantee, CURATOR: self.against_curator}

    @property
    def updates(self) -> int:
        """Updates of all clients together, or sums of a server that adds the noise: what is counted in a run."""
        return super().updates if self.curator is None else self.sums

    @property
    def words(self) -> Words:
        """A server that adds the noise is what counts: its sums."""
        return super().words if self.curator is None else replace(super().words, made="sum", figures=_ALIKE)

    @property
    def work(self) -> str:
        """Updates, or sums of them, in words."""
        if self.curator is None:
            return super().work
        return f"{counted(self.sums, 'sum')} of updates of {counted(len(self.most), self.called)}"

    def releases(self, name: str) -> int:
        """Updates of client ``name``, or sums that it is charged for."""
        return self.most[name]

    def counts(self, name: str) -> Counts | None:
        """The updates of client ``name``, as its own ledger counts them; None where its server's does alone."""
        return self.sides[name].counts()

    def side(self, name: str) -> SidePlan:
        """Return what leaves the data of ``name``: nothing of a server that adds no noise, which has none."""
        return self.sides.get(name) or Nothing()

    def outside(self, name: str) -> SidePlan:
        """Plan of what leaves the client, or its server if that is trusted."""
        return self.sides[name] if self.curator is None else self.curator

    def drawn(self, *, network: bool, deadline: bool) -> dict[str, Drawn]:
        """Numbers of the client that draws most. Whose gradients updates are does not matter, as all are shortened."""
        if self.curator is not None:
            return {OTHERS: self.curator.drawn(), CURATOR: Drawn()}
        return {EVERYBODY: max((side.drawn() for side in self.sides.values()), key=lambda drawn: drawn.numbers)}

    def spent(self, ledgers: Iterable[Any]) -> float | None:
        """Epsilon of the releases made so far, of the client that has spent most."""
        if self.curator is None:
            return super().spent(ledgers)
        if not self.curator.private or self.problem.spec.reproducible:
            return None
        spec, most = self.problem.spec, dict.fromkeys(self.curator.kinds, 0)
        for ledger in ledgers:
            # A curator's ledger has a line for each client; that there is but one kind is planned so.
            for (_, kind), count in ledger.counts.items():
                most[kind] = max(count, most[kind])
        return epsilon(most, spec.delta, spec.privacy.relation).epsilon
