"""The plan of a run whose clients release whole updates, each with noise of its own."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.algorithms.node_plan import EVERYBODY, NodePlan
from gossamer.privacy.releases import Counts
from gossamer.sides.deployed_guarantee import Drawn
from gossamer.sides.plan import ClientUpdate, Nothing, SidePlan


@dataclass(frozen=True, kw_only=True)
class ClientPlan(NodePlan):
    """The plan of a run of clients that clip and noise their own updates.

    Attributes
    ----------
    sides : dict of str to ClientUpdate
        What leaves each client: every update, noised.
    """

    sides: dict[str, ClientUpdate]

    called = "client"
    timed = False
    """All updates take as many examples."""

    def releases(self, name: str) -> int:
        """Updates of client ``name``."""
        return self.sides[name].most_updates

    def counts(self, name: str) -> Counts | None:
        """The updates of client ``name``, as its ledger counts them."""
        return self.sides[name].counts()

    def side(self, name: str) -> SidePlan:
        """Return what leaves the data of ``name``: nothing of the server, which has none."""
        return self.sides.get(name) or Nothing()

    def outside(self, name: str) -> SidePlan:
        """The same: nothing is shown to some alone."""
        return self.sides[name]

    def drawn(self, *, network: bool, deadline: bool) -> dict[str, Drawn]:
        """Numbers of the client that draws most. Whose gradients updates are does not matter, as all are shortened."""
        most = max((side.drawn() for side in self.sides.values()), key=lambda drawn: drawn.numbers)
        return {EVERYBODY: most}
