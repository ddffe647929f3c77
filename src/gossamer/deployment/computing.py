"""The data side of one deployed party, whatever its algorithm and its part in it, and what is then guaranteed.

| party | asked for | charged to |
|---|---|---|
| node with examples of its own | noisy sums on samples of them | `AnyLedger`, by the plan's kinds |
| server of a federated unit | the next record of the unit's stream | `AnyUnitLedger` |
| agent of a unit | its update, or messages of a masked sum | `AnyAgentLedger`, if agents add noise |
| server without data | nothing | - |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gossamer.algorithms.graph_settings import Settings
from gossamer.deployment.pacing import Paced, has_deadline
from gossamer.errors import SpecError
from gossamer.experiment.agent_sides import AgentCharges, agent_charges, deployed_agent_side
from gossamer.experiment.plans import RunPlan
from gossamer.experiment.prepare import Prepared
from gossamer.experiment.sample_plan import SamplePlan, release_counts
from gossamer.experiment.unit_plan import UnitPlan
from gossamer.objectives.glm import LinearModel
from gossamer.privacy.data_side import Answer, Computer
from gossamer.privacy.deployed_guarantee import Drawn, Times, deployed_bound, deployed_guarantee
from gossamer.privacy.deployed_side import DeployedSide
from gossamer.privacy.deployed_unit import DeployedUnitSide
from gossamer.privacy.filled_side import FilledSide
from gossamer.privacy.guarantees import Guarantee
from gossamer.privacy.mechanisms import Gaussian
from gossamer.privacy.noise_streams import NoiseLaw
from gossamer.privacy.release_times import OPEN_TIMES, PUBLIC_TIMES
from gossamer.privacy.releases import Counts
from gossamer.privacy.round_mark import RoundMark
from gossamer.privacy.sampling import Poisson
from gossamer.privacy.tasks import Query
from gossamer.privacy.unit_ledger import StreamKind
from gossamer.privacy.unit_records import Records
from gossamer.privacy.unit_side import AgentSide, UnitSides

if TYPE_CHECKING:
    from gossamer.privacy.masked_side import Signing


@dataclass(frozen=True)
class UnitCharges:
    """What a unit's server is charged for: its ledger is opened for this stream, with a line for each agent."""

    agents: tuple[str, ...]
    stream: StreamKind


Charges = Counts | UnitCharges | AgentCharges | None
"""What a party's ledger is opened for; None for a party that is charged nothing."""


def planned_charges(prepared: Prepared, plan: RunPlan, name: str) -> Charges:
    """What the ledger of party ``name`` has to be opened for: the whole plan.

    Raises
    ------
    CallerError
        If the settings do not fit together, or cryptography is missing.
    """
    if isinstance(plan, UnitPlan):
        if name in plan.units:
            return UnitCharges(plan.units[name].agents, plan.units[name].stream)
        return agent_charges(prepared, name, plan.clip, _agent_noise(prepared))
    if not (isinstance(plan, SamplePlan) and name in plan.schedules):
        return None
    return release_counts(plan.schedules[name], plan.mechanisms[name], plan.size)


def deployed_computer(
    prepared: Prepared,
    plan: RunPlan,
    name: str,
    ledger: Any,
    *,
    mark: RoundMark | None = None,
    records: Records | None = None,
    signing: Signing | None = None,
) -> Computer:
    """The data side of party ``name``, in a process of its own.

    Parameters
    ----------
    prepared : Prepared
        Whose training examples are this party's, all of its shard.
    plan : RunPlan
        Of the run.
    name : str
        The party.
    ledger : AnyLedger, AnyUnitLedger, AnyAgentLedger or None
        As `planned_charges` says; durable.
    mark : RoundMark, optional
        Needed by agents of masked sums; durable.
    records : Records, optional
        Of a unit's server; durable. Without them correlated noise cannot go on after a restart, and is refused.
    signing : Signing, optional
        Needed by agents of masked sums, in a run that has a name.

    Raises
    ------
    CallerError
        If something is missing, or the planned noise cannot be drawn.
    """
    if isinstance(plan, UnitPlan):
        if name in plan.units:
            return _unit_side(prepared, plan, name, ledger, records)
        side = deployed_agent_side(
            prepared, name, plan.clip, _agent_noise(prepared), plan.radius, ledger, mark, signing
        )
        return LoneAgent(name, side, prepared)
    if name not in prepared.names:
        return NoData(name)
    shard = prepared.shards[prepared.names.index(name)]
    make = FilledSide if has_deadline(prepared, plan) else DeployedSide
    return make(ledger, shard, prepared.objective, prepared.dataset.train, planned_queries(prepared, plan, name))


def paced(computer: Computer, prepared: Prepared, say: Callable[[str], object]) -> Computer:
    """The data side of a party as its node has it: with a deadline, if it has one; ``say`` is told of it."""
    if not isinstance(computer, FilledSide):
        return computer
    wanted = prepared.experiment.deployment.release_deadline
    return Paced(computer, wanted if isinstance(wanted, float) else None, say=say)


def planned_queries(prepared: Prepared, plan: RunPlan, name: str) -> list[Query]:
    """What node ``name`` will be asked, at the first clip."""
    assert isinstance(plan, SamplePlan)
    first = prepared.clipping.initial(prepared.initial)
    law = plan.mechanisms[name]
    return [prepared.clipping.query(Query(sampling, law, 1.0), first) for sampling in plan.schedules[name]]


class NoData:
    """The data side of a party without data: there is nothing to ask it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def admit(self, node: str, task: Any) -> Any:
        raise SpecError(f"{self._name} has no data in this run, found a task for them: {type(task).__name__}")

    def amended(self, ticket: Any, task: Any) -> Any:
        return self.admit(self._name, task)

    def compute(self, tickets: Sequence[Any]) -> list[Answer]:
        return [self.admit(self._name, ticket) for ticket in tickets]

    def releases(self, node: str) -> int:
        return 0


class LoneAgent:
    """The data side of one agent of a unit, without those of the others."""

    def __init__(self, name: str, side: AgentSide, prepared: Prepared) -> None:
        self._sides = UnitSides({name: side}, {}, {}, prepared.objective, prepared.dataset.train)
        self._ledger = getattr(side, "ledger", None)
        self.admit, self.amended, self.compute = self._sides.admit, self._sides.amended, self._sides.compute

    def releases(self, node: str) -> int:
        return 0 if self._ledger is None else int(self._ledger.releases)


def _unit_side(prepared: Prepared, plan: UnitPlan, name: str, ledger: Any, records: Records | None) -> DeployedUnitSide:
    settings = prepared.experiment.algorithm
    assert isinstance(settings, Settings)
    noise = _agent_noise(prepared)
    longest = settings.step_size * plan.clip
    if noise:
        # What agents add is in a sum, too, in every coordinate, up to the range of the integers.
        from gossamer.privacy.secure_unit import TAIL

        longest *= (1 + TAIL * noise) * math.sqrt(plan.size)
    return DeployedUnitSide(ledger, plan.size, plan.units[name].bound, longest, records)


def _agent_noise(prepared: Prepared) -> float:
    return prepared.experiment.privacy.agent_noise or 0.0


# What is guaranteed


def deployed_guarantees(prepared: Prepared, plan: RunPlan) -> tuple[Guarantee, Mapping[str, Guarantee]]:
    """The plan's guarantee in a deployment, and those by observer where they differ."""
    drawn = drawn_by(prepared, plan)
    by_observer = {
        observer: deployed_guarantee(guarantee, Drawn() if observer == "own_server" else drawn)
        for observer, guarantee in plan.guarantees.items()
    }
    if isinstance(plan, UnitPlan):
        return by_observer["other_units"], by_observer
    return deployed_guarantee(plan.guarantee, drawn), by_observer


def deployed_epsilon(prepared: Prepared, plan: RunPlan, name: str) -> float:
    """What is proved for party ``name``, at the delta of `deployed_guarantees`; infinite where nothing is."""
    epsilon = plan.epsilons[name]
    if not math.isfinite(epsilon):
        return epsilon
    return deployed_bound(epsilon, prepared.experiment.delta, drawn_by(prepared, plan))[0]


def drawn_by(prepared: Prepared, plan: RunPlan) -> Drawn:
    """What the party that draws most draws for its plan."""
    network = not isinstance(prepared.objective, LinearModel)
    if isinstance(plan, UnitPlan):
        streams = [unit.stream for unit in plan.units.values() if unit.stream.noise is not None]
        exact = all(stream.noise is not None and stream.noise.law is NoiseLaw.GAUSSIAN for stream in streams)
        most = max((stream.records * stream.size for stream in streams), default=0)
        # Updates are shortened, all of them, in float64: whose gradients they are does not matter.
        return Drawn(most if exact else 0, floating_point=bool(streams) and not exact)
    assert isinstance(plan, SamplePlan)
    releases = max(sum(schedule.values()) for schedule in plan.schedules.values())
    poisson = any(isinstance(sampling, Poisson) for schedule in plan.schedules.values() for sampling in schedule)
    samples, timely = releases * poisson, has_deadline(prepared, plan)
    times = Times(PUBLIC_TIMES, samples) if timely else Times(OPEN_TIMES)
    if not all(isinstance(law, Gaussian) for law in plan.mechanisms.values()):
        return Drawn(floating_point=True, network=network, times=times)
    return Drawn(releases * (plan.size + 1), samples, network=network, times=times)
