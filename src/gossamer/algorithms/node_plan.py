"""Plans of nodes that release with noise of their own, each for everybody: what they have in common."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

from gossamer.algorithms.context import Facts
from gossamer.algorithms.problem import Estimated, Problem
from gossamer.algorithms.sample_noise import describe_law
from gossamer.algorithms.sample_readings import Charged, epsilon_so_far
from gossamer.algorithms.stopping import StopSettings
from gossamer.algorithms.words import Words
from gossamer.errors import counted
from gossamer.privacy.guarantees import Guarantee, assuming, reproducible
from gossamer.privacy.mechanisms import Mechanism, NoNoise

EVERYBODY = "everybody"
"""The observer of what nodes release: it is shown to none alone."""


@dataclass(frozen=True, kw_only=True)
class NodePlan:
    """The plan of a run whose nodes release with noise of their own; a `Plan` once it says what they release.

    Attributes
    ----------
    problem : Problem
        What is planned for.
    stop : StopSettings
        With the default filled in.
    quotas : dict of str to int, or None
        Updates of each node, where something bounds them.
    mechanisms : dict of str to Mechanism
        Each node's noise, calibrated.
    epsilons : dict of str to float
        Proved for each node's whole plan; infinite without noise, and where it is reproducible.
    guarantee : Guarantee
        The worst of them, in words.
    advice : tuple of str
        What is to be said of the plan.
    would_be : mapping of str to float
        What ``epsilons`` would be with a noise secret, where noise is reproducible; empty where it is secret.
    """

    problem: Problem[Any] = field(repr=False, compare=False)
    stop: StopSettings
    quotas: dict[str, int] | None
    mechanisms: dict[str, Mechanism]
    epsilons: dict[str, float]
    guarantee: Guarantee
    advice: tuple[str, ...] = ()
    would_be: Mapping[str, float] = field(default_factory=dict)

    called: ClassVar[str] = "node"
    """What nodes are to their algorithm."""
    made: ClassVar[str] = "update"
    """What is counted."""
    lengths = None
    """Nothing is known of how long models are."""

    def reproducible(self) -> Self:
        """The plan with noise that can be drawn again, so that nothing is guaranteed."""
        none = dict.fromkeys(self.epsilons, math.inf)
        return replace(self, epsilons=none, would_be=self.epsilons, guarantee=reproducible(self.guarantee))

    def assuming(self, line: str) -> Self:
        """The plan whose guarantee assumes one thing more."""
        return replace(self, guarantee=assuming(self.guarantee, line))

    @property
    def estimates(self) -> Estimated | None:
        """Estimates that the schedule rests on and that the spec does not say."""
        return self.problem.estimates

    @property
    def guarantees(self) -> dict[str, Guarantee]:
        """Guarantees against all that may look."""
        return {EVERYBODY: self.guarantee}

    @cached_property
    def mechanism(self) -> Mechanism | None:
        """The noise that all nodes have in common, if they do."""
        laws = set(self.mechanisms.values())
        return laws.pop() if len(laws) == 1 else None

    @property
    def updates(self) -> int:
        """Most releases of all nodes together."""
        return sum(self.releases(name) for name in self.mechanisms)

    def releases(self, name: str) -> int:
        """Most releases of node ``name``."""
        raise NotImplementedError

    def smallest_sum(self, name: str) -> None:
        """Nobody hides in sums: each release is seen on its own."""

    @property
    def noise(self) -> list[dict[str, Any]]:
        """The law of each node."""
        return [mechanism.describe() for mechanism in self.mechanisms.values()]

    def __str__(self) -> str:
        laws = len(set(self.mechanisms.values()))
        noise = f"{laws} different noise laws" if self.mechanism is None else describe_law(self.mechanism)
        return f"{self.work}, {noise}"

    @property
    def words(self) -> Words:
        """Words for parties, what is counted, and the run's model."""
        return Words(self.called, self.made, self.problem.server)

    @property
    def work(self) -> str:
        """Updates, in words."""
        return f"{counted(self.updates, 'update')} of {counted(len(self.mechanisms), self.called)}"

    def describe(self) -> dict[str, Any]:
        """The noise that all nodes have in common; of no noise, its name alone."""
        if self.mechanism is None:
            return {"mechanism": f"different for each {self.called}"}
        return {"mechanism": "none"} if isinstance(self.mechanism, NoNoise) else self.mechanism.describe()

    def describe_node(self, name: str) -> dict[str, Any]:
        """A node's law, if it is not the others'."""
        return self.mechanisms[name].describe() if self.mechanism is None else {}

    @property
    def facts(self) -> Facts | None:
        """Facts for claims, where there are any."""
        return None

    @property
    def figures(self) -> dict[str, Any]:
        """Further figures on privacy, beside the guarantee."""
        return {}

    def spent(self, ledgers: Iterable[Charged]) -> float | None:
        """Epsilon of the releases made so far."""
        return epsilon_so_far(self.problem, ledgers)
