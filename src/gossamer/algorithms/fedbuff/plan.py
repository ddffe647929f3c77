"""The plan of a run whose clients release whole updates, each with noise of its own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from gossamer.algorithms.context import Facts
from gossamer.algorithms.fedbuff.settings import Settings
from gossamer.algorithms.problem import Estimated, Problem
from gossamer.algorithms.sample_noise import describe_law
from gossamer.algorithms.sample_readings import Charged, epsilon_so_far
from gossamer.algorithms.stopping import StopSettings
from gossamer.errors import counted
from gossamer.privacy.guarantees import Guarantee, assuming, reproducible
from gossamer.privacy.mechanisms import Mechanism
from gossamer.privacy.releases import Counts
from gossamer.sides.deployed_guarantee import Drawn
from gossamer.sides.plan import ClientUpdate, Nothing, SidePlan


@dataclass(frozen=True)
class ClientPlan:
    """The plan of a run of clients that clip and noise their own updates.

    Attributes
    ----------
    problem : Problem
        What is planned for.
    stop : StopSettings
        With the default filled in.
    quotas : dict of str to int, or None
        Updates of each client, where something bounds them.
    sides : dict of str to ClientUpdate
        What leaves each client: every update, noised.
    epsilons : dict of str to float
        Proved for each client's whole plan; infinite without noise, and where it is reproducible.
    guarantees : dict of str to Guarantee
        By observer: there is one, as all see the same.
    advice : tuple of str
        What is to be said of the plan.
    would_be : mapping of str to float
        What ``epsilons`` would be with a noise secret, where noise is reproducible; empty where it is secret.
    """

    problem: Problem[Settings] = field(repr=False, compare=False)
    stop: StopSettings
    quotas: dict[str, int] | None
    sides: dict[str, ClientUpdate]
    epsilons: dict[str, float]
    guarantees: dict[str, Guarantee]
    advice: tuple[str, ...] = ()
    would_be: Mapping[str, float] = field(default_factory=dict)

    lengths = None
    estimates: ClassVar[Estimated | None] = None
    timed = False
    """All updates take as many examples."""

    def reproducible(self) -> ClientPlan:
        """The plan with noise that can be drawn again, so that nothing is guaranteed."""
        none = {observer: reproducible(guarantee) for observer, guarantee in self.guarantees.items()}
        epsilons = dict.fromkeys(self.epsilons, math.inf)
        return replace(self, epsilons=epsilons, would_be=self.epsilons, guarantees=none)

    def assuming(self, line: str) -> ClientPlan:
        """The plan whose guarantees assume one thing more."""
        return replace(self, guarantees={who: assuming(found, line) for who, found in self.guarantees.items()})

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of the client that spends most, against everybody."""
        return next(iter(self.guarantees.values()))

    @property
    def mechanisms(self) -> dict[str, Mechanism]:
        """The noise of each client."""
        return {name: _law(side) for name, side in self.sides.items()}

    @property
    def updates(self) -> int:
        """Most updates of all clients together."""
        return sum(side.most_updates for side in self.sides.values())

    @property
    def noise(self) -> list[dict[str, Any]]:
        """The law of each client."""
        return [law.describe() for law in self.mechanisms.values()]

    @property
    def facts(self) -> Facts | None:
        """For claims, of which there are none."""
        return None

    @property
    def figures(self) -> dict[str, Any]:
        """None beside the guarantee."""
        return {}

    def __str__(self) -> str:
        made, clients = counted(self.updates, "update"), counted(len(self.sides), "client")
        laws = set(self.mechanisms.values())
        noise = describe_law(laws.pop()) if len(laws) == 1 else f"{len(laws)} different noise laws"
        return f"{made} of {clients}, {noise}"

    def releases(self, name: str) -> int:
        """Updates of client ``name``."""
        return self.sides[name].most_updates

    def counts(self, name: str) -> Counts | None:
        """The updates of client ``name``, as its ledger counts them."""
        return self.sides[name].counts()

    def describe(self) -> dict[str, Any]:
        """The noise that all clients have in common."""
        laws = set(self.mechanisms.values())
        return _described(laws.pop()) if len(laws) == 1 else {"mechanism": "different for each client"}

    def describe_node(self, name: str) -> dict[str, Any]:
        """A client's law, if it is not the others'."""
        return {} if len(set(self.mechanisms.values())) == 1 else _described(self.mechanisms[name])

    def side(self, name: str) -> SidePlan:
        """Return what leaves the data of ``name``: nothing of the server, which has none."""
        return self.sides.get(name) or Nothing()

    def outside(self, name: str) -> SidePlan:
        """The same: nothing is shown to some alone."""
        return self.sides[name]

    def smallest_sum(self, name: str) -> None:
        """Nobody hides in sums: each update is seen on its own."""

    def drawn(self, *, network: bool, deadline: bool) -> dict[str, Drawn]:
        """Numbers of the client that draws most. Whose gradients updates are does not matter, as all are shortened."""
        most = max((side.drawn() for side in self.sides.values()), key=lambda drawn: drawn.numbers)
        return dict.fromkeys(self.guarantees, most)

    def spent(self, ledgers: Iterable[Charged]) -> float | None:
        """Epsilon of the updates made so far."""
        return epsilon_so_far(self.problem, ledgers)


def _law(side: ClientUpdate) -> Mechanism:
    assert isinstance(side.noise, Mechanism)  # as it is planned here
    return side.noise


def _described(law: Mechanism) -> dict[str, Any]:
    return law.describe() if law.private else {"mechanism": "none"}
