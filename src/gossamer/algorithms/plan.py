"""Plan of a run: all that is fixed before its first release, as one value, whatever it is that nodes release."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gossamer.algorithms.problem import Problem, StopSettings
from gossamer.errors import counted
from gossamer.privacy import guarantees
from gossamer.privacy.guarantees import Guarantee
from gossamer.privacy.mechanisms import Mechanism, NoNoise
from gossamer.privacy.streams.graph_bounds import ModelLengths
from gossamer.sides.plan import Nothing, SidePlan

EVERYBODY = "everybody"
"""The observer of what nodes release: it is shown to none alone."""


@dataclass(frozen=True)
class Words:
    """Words for what a run prints of itself.

    Attributes
    ----------
    party : str
        Word for one of those that hold data.
    made : str
        Word for one of what is counted, such as an update, or a sum of updates that a server makes.
    server : str or None
        Name of the one server of all, if there is one.
    shared : bool
        Whether somebody has the run's model: where each learns alone, nobody has the mean of all.
    figures : str
        Words below the figures of all parties.
    plan : str
        The plan in a line.
    estimates : str
        Line on what the schedule rests on that the spec does not say; empty where it rests on nothing.
    advice : tuple of str
        Warnings about the plan, a line each.
    """

    party: str = "node"
    made: str = "update"
    server: str | None = None
    shared: bool = True
    figures: str = ""
    plan: str = ""
    estimates: str = ""
    advice: tuple[str, ...] = ()

    @property
    def model(self) -> str:
        """The run's model."""
        return "mean model" if self.server is None else f"{self.server}'s model"

    def parties(self, number: int) -> str:
        """So many of them, and their server if they have one."""
        theirs = "its" if number == 1 else "their"
        return counted(number, self.party) + ("" if self.server is None else f" and {theirs} server")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Plan of a run.

    Attributes
    ----------
    stop : StopSettings
        Conditions that end the run, with the default filled in.
    quotas : mapping of str to int, or None
        Updates of each node, where something bounds them.
    mechanisms : mapping of str to Mechanism
        Bound of each node's own queries, and their noise.
    epsilons : mapping of str to float
        Proved for each node's whole plan; infinite where nothing is.
    would_be : mapping of str to float
        Values that ``epsilons`` would have with a noise secret, where noise is reproducible; empty where it is secret.
    guarantees : mapping of str to Guarantee
        Guarantee against each observer, the one that the noise is planned for first.
    sides : mapping of str to SidePlan
        The most that leaves each party, in the order of ledgers; without those that release nothing.
    releases : mapping of str to int
        Most releases with the data of each node.
    updates : int
        Most updates of all nodes together, or sums of a server: what is counted in the run.
    noise : sequence of mappings
        All that decides what noise is drawn, as plain data.
    figures : mapping
        Figures on privacy for a summary: the ``mechanism`` that nodes have in common, as plain data, and what else.
    words : Words
        Words for parties, what is counted, the run's model, and the plan itself.
    spent : callable
        ledgers -> the largest epsilon of what has been released so far, or None: a reading, not a guarantee.
    lengths : ModelLengths or None
        Lengths that models of an honest run can have, where somebody relies on it.
    """

    stop: StopSettings
    quotas: Mapping[str, int] | None
    mechanisms: Mapping[str, Mechanism]
    epsilons: Mapping[str, float]
    would_be: Mapping[str, float] = field(default_factory=dict)
    guarantees: Mapping[str, Guarantee]
    sides: Mapping[str, SidePlan]
    releases: Mapping[str, int]
    updates: int
    noise: Sequence[Mapping[str, Any]]
    figures: Mapping[str, Any]
    words: Words
    spent: Callable[[Iterable[Any]], float | None] = field(repr=False, compare=False)
    lengths: ModelLengths | None = None

    @property
    def guarantee(self) -> Guarantee:
        """The first of them: of the node that spends most."""
        return next(iter(self.guarantees.values()))

    @property
    def hides_schedule(self) -> bool:
        """Whether guarantees hold only if times, and numbers of messages and updates, are kept secret."""
        return any(side.trusted.hides_schedule for side in self.sides.values())

    def __str__(self) -> str:
        return self.words.plan

    def side(self, name: str) -> SidePlan:
        """Plan of what leaves party ``name``, at most: nothing of a server that is charged nothing."""
        return self.sides.get(name) or Nothing()

    def describe(self) -> dict[str, Any]:
        """The noise that nodes have in common, as plain data."""
        return dict(self.figures["mechanism"])

    def reproducible(self) -> Plan:
        """The plan with noise that can be drawn again, so that nothing is guaranteed."""
        none = {observer: guarantees.reproducible(guarantee) for observer, guarantee in self.guarantees.items()}
        return replace(self, epsilons=dict.fromkeys(self.epsilons, math.inf), would_be=self.epsilons, guarantees=none)

    def assuming(self, line: str) -> Plan:
        """The plan whose guarantees assume one thing more."""
        found = {observer: guarantees.assuming(guarantee, line) for observer, guarantee in self.guarantees.items()}
        return replace(self, guarantees=found)


def differing(by_observer: Mapping[str, Guarantee]) -> dict[str, Guarantee]:
    """Guarantees by observer, where there are several."""
    return dict(by_observer) if len(by_observer) > 1 else {}


def least_noise(problem: Problem[Any], plan: Plan) -> Mechanism:
    """The law of the node with the least noise; its clip is the one at the start."""
    return min(plan.mechanisms.values(), key=lambda law: law.second_moment(problem.size))


def in_common(mechanisms: Mapping[str, Mechanism]) -> Mechanism | None:
    """The noise that all nodes have in common, if they do."""
    laws = set(mechanisms.values())
    return laws.pop() if len(laws) == 1 else None


def noise_of(mechanisms: Mapping[str, Mechanism], party: str = "node") -> dict[str, Any]:
    """The noise of nodes as the figure ``mechanism``; of no noise, its name alone."""
    law = in_common(mechanisms)
    if law is None:
        return {"mechanism": f"different for each {party}"}
    return {"mechanism": "none"} if isinstance(law, NoNoise) else law.describe()
