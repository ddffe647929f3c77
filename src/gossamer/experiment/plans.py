"""What every plan of a run offers, whatever it is that nodes release."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from gossamer.algorithms.algorithm import Facts
from gossamer.experiment.completing import Estimated
from gossamer.experiment.prepare import Prepared
from gossamer.experiment.spec import StopSettings
from gossamer.objectives.objective import IndexArray
from gossamer.privacy.data_side import Computer
from gossamer.privacy.guarantees import Guarantee
from gossamer.privacy.mechanisms import Mechanism
from gossamer.privacy.model_radius import ModelLengths
from gossamer.protocol.node import Node
from gossamer.sides.plan import SidePlan


class AnyLedger(Protocol):
    """What has been charged."""

    def lines(self) -> list[dict[str, Any]]:
        """Records for ``ledger.jsonl``."""
        ...


class RunPlan(Protocol):
    """What is fixed before the first release.

    Attributes
    ----------
    stop : StopSettings
        With the default filled in.
    quotas : dict of str to int, or None
        Updates of each node.
    mechanisms : mapping of str to Mechanism
        Of each node's own queries: what bounds them, and their noise.
    epsilons : mapping of str to float
        Proved for each node's whole plan; infinite where nothing is.
    would_be : mapping of str to float
        What ``epsilons`` would be with a noise secret, where noise is reproducible; empty where it is secret.
    guarantee : Guarantee
        The worst of them, in words.
    guarantees : mapping of str to Guarantee
        By observer, where they differ.
    estimates : Estimated or None
        What the schedule rests on that the spec does not say.
    lengths : ModelLengths or None
        How long models of an honest run can be, where somebody relies on it.
    """

    @property
    def stop(self) -> StopSettings: ...
    @property
    def quotas(self) -> dict[str, int] | None: ...
    @property
    def mechanisms(self) -> Mapping[str, Mechanism]: ...
    @property
    def epsilons(self) -> Mapping[str, float]: ...
    @property
    def would_be(self) -> Mapping[str, float]: ...
    @property
    def guarantee(self) -> Guarantee: ...
    @property
    def guarantees(self) -> Mapping[str, Guarantee]: ...
    @property
    def estimates(self) -> Estimated | None: ...
    @property
    def lengths(self) -> ModelLengths | None: ...

    @property
    def updates(self) -> int:
        """Most updates of all nodes together."""
        ...

    @property
    def noise(self) -> Sequence[Mapping[str, Any]]:
        """All that decides what noise is drawn, as plain data."""
        ...

    def __str__(self) -> str:
        """The plan in a line."""
        ...

    def releases(self, name: str) -> int:
        """Most releases with the data of node ``name``."""
        ...

    def describe(self) -> dict[str, Any]:
        """The noise that all nodes have in common, as plain data."""
        ...

    def describe_node(self, name: str) -> dict[str, Any]:
        """What else is to be said of one node's noise."""
        ...

    def figures(self, prepared: Prepared) -> dict[str, Any]:
        """What else a summary says of privacy."""
        ...

    def facts(self, prepared: Prepared) -> Facts | None:
        """What claims are computed from; None for a run without noise."""
        ...

    def side(self, prepared: Prepared, name: str) -> SidePlan:
        """What leaves the data of party ``name``, at most."""
        ...

    def outside(self, prepared: Prepared, name: str) -> SidePlan:
        """What leaves the trust scope of party ``name``, with its data."""
        ...

    def sides(
        self, prepared: Prepared, seed: int, blank: IndexArray | None = None
    ) -> tuple[Computer, Sequence[AnyLedger]]:
        """The data sides with the plan's ledgers, and these; ``blank`` are rows whose slots hold nothing."""
        ...

    def spent(self, prepared: Prepared, ledgers: Iterable[Any]) -> float | None:
        """The largest epsilon of what has been released so far, or None: a reading, not a guarantee."""
        ...


def nodes_of(prepared: Prepared, plan: RunPlan) -> dict[str, Node]:
    """Fresh nodes of a run, by name."""
    context = prepared.context(plan.mechanisms, plan.quotas, lengths=plan.lengths)
    nodes: dict[str, Node] = prepared.algorithm.build(prepared.experiment.algorithm, context)
    return nodes
