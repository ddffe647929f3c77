"""Baselines: DP-SGD at each node alone (``local``), or at one node that holds all examples (``central``).

Every node loops, and says nothing to anybody:

1. sample a batch;
2. g = sum of clipped gradients at the model w, over the expected size of a batch;
3. g~ = g + noise                                                (2 and 3 happen at the data side)
4. w = w - eta g~, or the optimizer's move for g~.

It is what gossip is without exchanges, with the same settings, noise and accountant: so what a run of gossip gains on
``local`` is what sharing is worth, and what it lacks of ``central`` is what it costs not to bring the examples
together. ``central`` has one node; with noise it protects each example against whoever sees that node's models.

| symbol | here |
|---|---|
| w | `state.w` |
| eta | `Settings.learning_rate` |

References
----------
M. Abadi et al., "Deep learning with differential privacy", CCS 2016, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from gossamer.algorithms.context import Context
from gossamer.algorithms.interface import Algorithm, Clips, SmallRuns, Terms, few
from gossamer.algorithms.nodes import LearnerSettings, LearnerState, LearningNode, goes_by_all
from gossamer.algorithms.plan import Plan, Problem
from gossamer.algorithms.sample_planning import plan_samples
from gossamer.privacy.guarantees import ALL_MODELS
from gossamer.protocol.node import Effects, Node
from gossamer.vectors import Model, stepped


class Settings(LearnerSettings):
    """Settings of `local` and `central`.

    Attributes
    ----------
    nodes : int
        Number of nodes of `local`, 8 by default. `central` has one.
    """

    name: Literal["local", "central"] = "local"

    @classmethod
    def _implied(cls, said: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"nodes": 1} if said.get("name") == "central" else {}

    def _problems(self) -> Iterator[str]:
        if self.name == "central" and self.nodes != 1:
            yield f"central has all examples at 1 node, found {self.nodes}; leave nodes out, or take local"


@dataclass
class State(LearnerState):
    """State of a node: that of a learner, and how many updates it has made."""

    updates: int = 0


class AloneNode(LearningNode):
    """One party, which nobody hears of."""

    def __init__(self, name: str, context: Context, settings: Settings) -> None:
        super().__init__(name, context, settings, State)

    def begin(self) -> Effects:
        """Lines 1 to 3."""
        if not self.state.finished:
            yield self.compute()

    def update(self, move: Model) -> Effects:
        """Line 4."""
        s = self.state
        s.w = stepped(s.w, move, -self.rate)
        s.updates += 1
        if self.quota is not None and s.updates >= self.quota:
            yield from self.finish("quota")
        else:
            yield from self.begin()


def plan(problem: Problem[Settings]) -> Plan:
    """The plan of nodes that say nothing: what is proved is against whoever sees their models all the same."""
    found = plan_samples(problem, ALL_MODELS)
    return replace(found, words=replace(found.words, shared=len(problem.shard_sizes) == 1))


def small_runs(settings: Settings) -> SmallRuns:
    """Three nodes and four, or the one of `central`."""
    several, more = (1, 1) if settings.name == "central" else (3, 4)
    return few((several, 4), (more, 3), batch_size=4)


def build(settings: Settings, context: Context) -> dict[str, Node]:
    """The nodes of a run, by name."""
    return {name: AloneNode(name, context, settings) for name in context.names}


# Nobody has the mean of all models: what counts of `local` is what each node's own model is worth.
ALGORITHM = Algorithm(
    Settings=Settings,
    build=build,
    plan=plan,
    clips=Clips(("fixed", "quantile")),
    small_runs=small_runs,
    terms=lambda settings: Terms(told=goes_by_all(settings)),
)
