"""The plan of a run of federated units: a stream of noise for each, and what is proved against whom."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

from gossamer.algorithms.context import Facts
from gossamer.algorithms.graph_federated.guarantees import proved_epsilon
from gossamer.algorithms.graph_federated.settings import Settings, server_of
from gossamer.algorithms.graph_federated.sides import agent_plans, smallest_sum
from gossamer.algorithms.problem import Estimated, Problem
from gossamer.algorithms.stopping import StopSettings
from gossamer.algorithms.words import Words
from gossamer.errors import counted
from gossamer.privacy.guarantees import Guarantee, assuming, reproducible
from gossamer.privacy.mechanisms import Mechanism
from gossamer.privacy.streams.graph_bounds import (
    Noise,
    RandomNoise,
    UpdateBound,
    gaussian_mu_of,
    laplace_epsilon_of,
)
from gossamer.privacy.streams.model_radius import ModelLengths
from gossamer.privacy.streams.noise_streams import NoiseLaw
from gossamer.privacy.streams.unit_ledger import StreamKind
from gossamer.sides.deployed_guarantee import Drawn
from gossamer.sides.ledger import Ledger
from gossamer.sides.plan import SidePlan, Stream


@dataclass(frozen=True)
class UnitTerms:
    """Terms planned for one unit.

    Attributes
    ----------
    agents : tuple of str
        Whose data it holds.
    stream : StreamKind
        Of its server.
    links : int
        Records of a round.
    noise : Noise or None
        What its messages carry.
    bound : UpdateBound or None
        How far one change moves its updates; None where nothing is proved.
    """

    agents: tuple[str, ...]
    stream: StreamKind
    links: int
    noise: Noise | None
    bound: UpdateBound | None

    def epsilon(self, rounds: int, size: int, delta: float) -> float:
        """Proved of the messages of the first ``rounds``; infinite where nothing is."""
        if self.noise is None or self.bound is None:
            return math.inf
        return proved_epsilon(first_rounds(self.noise, rounds), self.bound, size, delta).epsilon if rounds else 0.0


def first_rounds(noise: Noise, rounds: int) -> Noise:
    """The noise of the first ``rounds``, at least 1: what it moves is the beginning of C 1."""
    if isinstance(noise, RandomNoise):
        return replace(noise, rounds=rounds)
    whole = noise.factorisation
    # As many rounds are left after the others: the same kernel, cut off.
    return replace(noise, factorisation=whole.after_loss(whole.rounds - rounds))


@dataclass(frozen=True)
class UnitPlan:
    """The plan of a run of federated units.

    Attributes
    ----------
    problem : Problem
        What is planned for.
    mechanisms : dict of str to Mechanism
        What bounds the mean gradients of each agent; noise is added by servers.
    guarantees : dict of str to Guarantee
        By observer: ``other_units``, ``own_agents``, ``own_server``.
    noise_of_all : Noise or None
        Of all units together.
    units : dict of str to UnitTerms
        By server.
    expected : mapping of str to float, or None
        Disagreement of the models and moves of their mean, of the noise alone.
    lengths : ModelLengths or None
        How long models can be, where sums are masked.
    advice : tuple of str
        What is to be said of the plan.
    repeatable : bool
        Whether the noise is reproducible, so that nothing is guaranteed.
    """

    problem: Problem[Settings] = field(repr=False, compare=False)
    mechanisms: dict[str, Mechanism]
    guarantees: dict[str, Guarantee]
    noise_of_all: Noise | None
    units: dict[str, UnitTerms]
    expected: Mapping[str, float] | None
    lengths: ModelLengths | None = None
    advice: tuple[str, ...] = ()
    repeatable: bool = False

    quotas = None
    """Rounds are the algorithm's own."""
    estimates: ClassVar[Estimated | None] = None
    timed = False
    words = Words()
    """There is no one server, and models are those of several."""

    @property
    def stop(self) -> StopSettings:
        """Conditions that end the run, as in the spec."""
        return self.problem.spec.stop

    @property
    def rounds(self) -> int:
        """T, of each server."""
        return self.problem.settings.rounds

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.problem.size

    @property
    def delta(self) -> float:
        """Delta at which epsilons are stated."""
        return self.problem.spec.delta

    def reproducible(self) -> UnitPlan:
        """The plan with noise that can be drawn again, so that nothing is guaranteed."""
        none = {observer: reproducible(guarantee) for observer, guarantee in self.guarantees.items()}
        return replace(self, guarantees=none, repeatable=True)

    def assuming(self, line: str) -> UnitPlan:
        """The plan whose guarantees assume one thing more."""
        return replace(self, guarantees={who: assuming(found, line) for who, found in self.guarantees.items()})

    def __str__(self) -> str:
        made, units = counted(self.updates, "update"), counted(len(self.units), "unit")
        line = f"{made} of {units} in {counted(self.rounds, 'round')}, {self._law}"
        if self.expected is None:
            return line
        return f"{line}; expected network disagreement {self.expected['disagreement']:.4g}"

    @property
    def _law(self) -> str:
        """The noise in a few words."""
        noise = self.noise_of_all
        if noise is None:
            return "no noise"
        how = "" if isinstance(noise, RandomNoise) else f"{noise.factorisation.temporal}, "
        return f"{self._scheme} {noise.law} noise ({how}standard deviation {noise.standard_deviation:.4g})"

    @property
    def clip(self) -> float:
        """B, of every mean gradient."""
        return next(iter(self.mechanisms.values())).clip

    @property
    def radius(self) -> float:
        """Most L2 norm of a model that agents of masked sums make updates at; infinite where nothing is masked."""
        return math.inf if self.lengths is None else self.lengths.radius

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee against the other units."""
        return self.guarantees["other_units"]

    @property
    def updates(self) -> int:
        """Rounds of all servers, those of averaging at the end included."""
        return (self.rounds + self.problem.settings.consensus) * len(self.units)

    @cached_property
    def epsilons(self) -> dict[str, float]:
        """Proved for each agent, against the other units; infinite where noise is reproducible."""
        return dict.fromkeys(self._epsilons, math.inf) if self.repeatable else self._epsilons

    @property
    def would_be(self) -> dict[str, float]:
        """The same with a noise secret, where noise is reproducible; empty where it is secret."""
        return self._epsilons if self.repeatable else {}

    @cached_property
    def _epsilons(self) -> dict[str, float]:
        known: dict[tuple[Noise | None, UpdateBound | None], float] = {}
        found = {}
        for unit in self.units.values():
            key = unit.noise, unit.bound
            if key not in known:
                known[key] = unit.epsilon(self.rounds, self.size, self.delta)
            found.update(dict.fromkeys(unit.agents, known[key]))
        return found

    @property
    def noise(self) -> list[dict[str, Any]]:
        """The stream of each unit."""
        return [unit.stream.describe() for unit in self.units.values()]

    @cached_property
    def unit_of(self) -> dict[str, UnitTerms]:
        """The terms of the unit of each agent."""
        return {agent: unit for unit in self.units.values() for agent in unit.agents}

    def releases(self, name: str) -> int:
        """Records with the data of agent ``name``."""
        return self.unit_of[name].stream.records

    def describe(self) -> dict[str, Any]:
        """The stream that all units have; without numbers of records where they differ."""
        first, *others = self.noise
        common = {key: value for key, value in first.items() if all(other[key] == value for other in others)}
        return {**common, "noise": self._scheme, "rounds": self.rounds}

    @property
    def _scheme(self) -> str:
        if self.noise_of_all is None:
            return "none"
        return "random" if isinstance(self.noise_of_all, RandomNoise) else "homomorphic"

    def describe_node(self, name: str) -> dict[str, Any]:
        """Return nothing: what differs from unit to unit is in the ledger."""
        return {}

    @property
    def figures(self) -> dict[str, Any]:
        """Expected effect of the noise on the models that gradients are taken at, and how far out these may be."""
        noise = {} if self.expected is None else {"expected_noise": dict(self.expected)}
        return noise | ({"masked_model_radius": self.radius} if math.isfinite(self.radius) else {})

    @property
    def facts(self) -> Facts | None:
        """Facts for claims; of the agents' mechanisms only the clip says something."""
        if self.noise_of_all is None:
            return None
        some = next(iter(self.mechanisms.values()))
        return self.problem.facts(self.updates, some, self.releases, self.noise_of_all)

    def side(self, name: str) -> SidePlan:
        """Plan of what leaves the data of agent ``name``; of a server, of what leaves its unit."""
        if name in self.units:
            return self._stream(name)
        return self._side_plans((self._server_of[name],))[name]

    def outside(self, name: str) -> SidePlan:
        """Plan of what leaves the unit of agent ``name``, with its data."""
        return self._stream(self._server_of[name])

    @cached_property
    def sides(self) -> dict[str, SidePlan]:
        """Plans of each server, then of each agent."""
        return self._side_plans(self.units)

    def counts(self, name: str) -> None:
        """Return None: what leaves a unit is its server's."""

    def smallest_sum(self, name: str) -> int | None:
        """Least number of agents' updates in the sums that a server sees; None where they are not masked."""
        return smallest_sum(self.problem, name, self.clip)

    def drawn(self, *, network: bool, deadline: bool) -> dict[str, Drawn]:
        """Coordinates of the longest stream; whose gradients updates are does not matter, as all are shortened."""
        streams = [unit.stream for unit in self.units.values() if unit.stream.noise is not None]
        exact = all(stream.noise is not None and stream.noise.law is NoiseLaw.GAUSSIAN for stream in streams)
        most = max((stream.records * stream.size for stream in streams), default=0)
        drawn = Drawn(most if exact else 0, floating_point=bool(streams) and not exact)
        # What protects from the own server is drawn by agents, whose sampler has the exact law.
        return {observer: Drawn() if observer == "own_server" else drawn for observer in self.guarantees}

    def _side_plans(self, servers: Iterable[str]) -> dict[str, SidePlan]:
        """Plans of the parties of some units, servers first."""
        streams: dict[str, SidePlan] = {server: self._stream(server) for server in servers}
        return streams | agent_plans(self.problem, self.clip, self.radius, streams)

    def _stream(self, server: str) -> Stream:
        unit = self.units[server]
        noise, bound = unit.noise, unit.bound
        proved: dict[str, float] = {}
        if noise is not None and bound is not None:
            gaussian = noise.law is NoiseLaw.GAUSSIAN
            proved = (
                {"mu": gaussian_mu_of(noise, bound)}
                if gaussian
                else {"epsilon": laplace_epsilon_of(noise, bound, self.size)}
            )
        return Stream(
            unit.stream.noise,
            unit.stream.records,
            unit.stream.size,
            None if bound is None else bound.moved,
            1 if bound is None else bound.agents_sampled,
            self._longest,
            unit.agents,
            scope=frozenset((server, *unit.agents)),
            unit=self.guarantee.unit,
            observer=self.guarantee.observer,
            **proved,
        )

    @property
    def _longest(self) -> float:
        """The most L2 norm of a round's update, that of one change left aside."""
        longest, agent_noise = self.problem.settings.step_size * self.clip, self.problem.spec.privacy.agent_noise
        if not agent_noise:
            return longest
        # What agents add is in a sum, too, in every coordinate, up to the range of the integers.
        from gossamer.sides.secure_unit import TAIL

        return longest * ((1 + TAIL * agent_noise) * math.sqrt(self.size))

    @cached_property
    def _server_of(self) -> dict[str, str]:
        return server_of(self.problem.settings, self.problem.names)

    def spent(self, ledgers: Iterable[Ledger]) -> float | None:
        """Epsilon of the rounds that have begun to be released, against other units."""
        if not math.isfinite(self.guarantee.epsilon):
            return None
        begun: dict[tuple[Noise | None, UpdateBound | None], tuple[UnitTerms, int]] = {}
        for ledger in ledgers:
            if ledger.owner not in self.units:
                continue  # an agent's own noise protects it from its own server
            unit = self.units[ledger.owner]
            rounds = -(-ledger.releases // unit.links)
            key = unit.noise, unit.bound
            begun[key] = unit, max(rounds, begun.get(key, (unit, 0))[1])
        return max((unit.epsilon(rounds, self.size, self.delta) for unit, rounds in begun.values()), default=0.0)
