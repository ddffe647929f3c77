"""Interface of every plan of a run, whatever it is that nodes release."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, Self

from gossamer.algorithms.context import Facts
from gossamer.algorithms.problem import Estimated
from gossamer.algorithms.stopping import StopSettings
from gossamer.algorithms.words import Words
from gossamer.privacy.guarantees import Guarantee
from gossamer.privacy.mechanisms import Mechanism
from gossamer.privacy.releases import Counts
from gossamer.privacy.streams.model_radius import ModelLengths
from gossamer.sides.deployed_guarantee import Drawn
from gossamer.sides.plan import SidePlan


class Plan(Protocol):
    """Plan of a run, fixed before the first release.

    Attributes
    ----------
    stop : StopSettings
        With the default filled in.
    quotas : mapping of str to int, or None
        Updates of each node.
    mechanisms : mapping of str to Mechanism
        Of each node's own queries: what bounds them, and their noise.
    epsilons : mapping of str to float
        Proved for each node's whole plan; infinite where nothing is.
    would_be : mapping of str to float
        What ``epsilons`` would be with a noise secret, where noise is reproducible; empty where it is secret.
    guarantees : mapping of str to Guarantee
        By observer, the one that the noise is planned for first.
    advice : sequence of str
        What is to be said of the plan, a line each.
    estimates : Estimated or None
        What the schedule rests on that the spec does not say.
    lengths : ModelLengths or None
        How long models of an honest run can be, where somebody relies on it.
    """

    @property
    def stop(self) -> StopSettings: ...
    @property
    def quotas(self) -> Mapping[str, int] | None: ...
    @property
    def mechanisms(self) -> Mapping[str, Mechanism]: ...
    @property
    def epsilons(self) -> Mapping[str, float]: ...
    @property
    def would_be(self) -> Mapping[str, float]: ...
    @property
    def guarantees(self) -> Mapping[str, Guarantee]: ...
    @property
    def advice(self) -> Sequence[str]: ...
    @property
    def estimates(self) -> Estimated | None: ...
    @property
    def lengths(self) -> ModelLengths | None: ...

    @property
    def guarantee(self) -> Guarantee:
        """The first of them: of the node that spends most."""
        ...

    @property
    def updates(self) -> int:
        """Most updates of all nodes together."""
        ...

    @property
    def timed(self) -> bool:
        """Whether an answer takes as long as its sample is large, so that a deployed one may have a deadline."""
        ...

    @property
    def noise(self) -> Sequence[Mapping[str, Any]]:
        """All that decides what noise is drawn, as plain data."""
        ...

    @property
    def facts(self) -> Facts | None:
        """Facts that claims are computed from; None for a run without noise."""
        ...

    @property
    def figures(self) -> dict[str, Any]:
        """Further figures on privacy for a summary."""
        ...

    @property
    def sides(self) -> Mapping[str, SidePlan]:
        """Plans of what leaves each party, at most, in the order of ledgers; without those that release nothing."""
        ...

    @property
    def words(self) -> Words:
        """Words for parties, what is counted, and the run's model."""
        ...

    def __str__(self) -> str:
        """The plan in a line."""
        ...

    def releases(self, name: str) -> int:
        """Most releases with the data of node ``name``."""
        ...

    def counts(self, name: str) -> Counts | None:
        """The releases of node ``name``, as its ledger counts them; None where they are not its own."""
        ...

    def describe(self) -> dict[str, Any]:
        """The noise that all nodes have in common, as plain data."""
        ...

    def describe_node(self, name: str) -> dict[str, Any]:
        """Further entries on one node's noise."""
        ...

    def side(self, name: str) -> SidePlan:
        """Plan of what leaves the data of party ``name``, at most."""
        ...

    def outside(self, name: str) -> SidePlan:
        """Plan of what leaves the trust scope of party ``name``, with its data."""
        ...

    def smallest_sum(self, name: str) -> int | None:
        """Least number of updates in the sums in which node ``name`` hides; None where it hides in none."""
        ...

    def drawn(self, *, network: bool, deadline: bool) -> Mapping[str, Drawn]:
        """Numbers that the party that draws most draws for its plan in a deployment, by observer.

        Parameters
        ----------
        network : bool
            Whether gradients are those of a network.
        deadline : bool
            Whether answers have one, as they may where the plan is `timed`.
        """
        ...

    def spent(self, ledgers: Iterable[Any]) -> float | None:
        """The largest epsilon of what has been released so far, or None: a reading, not a guarantee."""
        ...

    def reproducible(self) -> Self:
        """The plan with noise that can be drawn again, so that nothing is guaranteed."""
        ...

    def assuming(self, line: str) -> Self:
        """The plan whose guarantees assume one thing more."""
        ...


def hides_schedule(plan: Plan) -> bool:
    """Whether a run's guarantees hold only if its times, and numbers of messages and updates, are kept secret."""
    return any(side.hides_schedule for side in plan.sides.values())


def differing(guarantees: Mapping[str, Guarantee]) -> dict[str, Guarantee]:
    """Guarantees by observer, where there are several."""
    return dict(guarantees) if len(guarantees) > 1 else {}
