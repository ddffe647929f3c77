"""Settings of `graph_federated`, and what follows from them alone: units, public coins, questions, and weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Literal, Self

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from gossamer.algorithms.aggregation import Aggregation
from gossamer.algorithms.context import Batches, draw
from gossamer.algorithms.plan import OneOr, SecureSums, Spec
from gossamer.arrays import FloatArray
from gossamer.errors import SpecError, TopologyError, beginning
from gossamer.files import refusals
from gossamer.privacy.clipping import NoClip
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.tasks import LocalQuery
from gossamer.randomness import Stream, stream
from gossamer.section import Composite, bare
from gossamer.topology.graphs import Graph
from gossamer.topology.kinds import Ring
from gossamer.topology.mixing import check_connected, check_doubly_stochastic, metropolis
from gossamer.topology.topologies import Topology

if TYPE_CHECKING:
    from gossamer.sides.secure_unit import SecureUnit


class Masking(SecureSums):
    """Settings of masks inside a unit.

    Attributes
    ----------
    name : {"none", "secure"}
        ``secure``: a server that hands on its agents' keys learns exact sums of updates made at one model, and what
        these sums tell.
    bits : {32, 64}
        Bits of the integers that updates are added as, with ``secure``.
    threshold : int, optional
        Agents that have to answer with ``secure`` for a sum to be unmasked, more than half of those sampled. By
        default two thirds of them, rounded up.
    minimum : int, optional
        Fewest updates in a sum with ``secure``, at least the threshold. By default the threshold.
    fraction_bits : int, optional
        Binary digits after the point with ``secure``. By default as many as the clip, the agents and the bits allow.
    radius : float, optional
        Most L2 norm, with ``secure``, of a model that agents make updates at. In a round with one beyond they take no
        part, so servers shorten what they ask about to it. By default what no honest run exceeds, which follows from
        the clip, the rounds and the noise.
    """

    radius: float | None = Field(default=None, gt=0)


Agents = OneOr[PositiveInt, tuple[PositiveInt, ...]]
"""A number for all units, or a list with one for each."""
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Span = OneOr[Count, tuple[Count, Count]]
"""A number for all agents, or the least and the most, of which each agent draws its own."""
Combination = OneOr[Literal["metropolis"], tuple[tuple[float, ...], ...]]
"""Weights by a rule, or a matrix."""


_RANDOM = ("random", "random_own_term")
"""Noise of its own for every neighbour."""

MOST_AGENTS = 1_000_000
MOST_EXAMPLES = 10_000_000
"""Of an agent in a round; their numbers are drawn at once."""


class Settings(Composite):
    """Settings of `graph_federated`.

    Attributes
    ----------
    units : int
        P, federated units: a server each.
    agents : int or list of int
        K_p, agents of each unit; a list has one number for each.
    agents_sampled : int, optional
        L, agents that take part in a round of their unit; by default all of them.
    local_steps : int or list of two
        E, mini-batch steps of an agent in a round; of a list [least, most] each agent draws its own.
    batch_size : int or list of two
        Examples of a step, drawn with replacement; as ``local_steps``.
    step_size : float
        mu, of a whole round: each step has mu/E.
    rounds : int
        T, rounds of each server.
    topology : topology
        Graph of the servers: who is whose neighbour.
    combination : "metropolis" or matrix
        a_pm, how servers combine: Metropolis-Hastings weights of the topology, or a symmetric doubly stochastic matrix
        with a_pp > 0, whose other entries above 0 are the edges.
    noise : {"none", "random", "random_own_term", "homomorphic"}, optional
        Noise that is added to messages between servers. ``random``: noise of its own on every link.
        ``random_own_term``: on the server's own term too, which never leaves it, as in the paper's equation 8.
        ``homomorphic``: the same on all links of a server, which takes it back in its own term. By default homomorphic
        where there is privacy.
    gradient_at : {"released", "hidden"}, optional
        Models that agents take gradients at: at what follows from messages, or at the server's own state. By default
        released, and hidden with random noise.
    temporal : {"independent", "random_walk", "sqrt_toeplitz", "banded"}, optional
        Correlation of the noise of one round with that of earlier ones. By default, the planner's choice for a budget,
        and else independent.
    bands : int, optional
        Number of bands, of ``banded``.
    synchronous : bool
        Whether a server waits for its neighbours' messages of the round, or combines with the newest that it has.
    timeout : float, optional
        Seconds after which a round goes on without the agents that have not answered. By default only agents that are
        known to be away are not waited for.
    patience : float
        Seconds after which peers that a server waits for are asked whether they are there, then twice as many, and so
        on.
    masking : masking
        Masks that hide agents' updates from their own server: ``none`` or ``secure``.
    consensus : int
        Rounds of averaging of the last messages, at the end.
    aggregation : str or mapping, optional
        Robust rule for the models of a server and its neighbours, in the place of the weighted mean.
    """

    name: Literal["graph_federated"] = "graph_federated"
    units: int = Field(default=5, ge=1, le=2_000)
    agents: Agents = 10
    agents_sampled: int | None = Field(default=None, ge=1)
    local_steps: Span = 1
    batch_size: Span = 10
    step_size: float = Field(default=0.1, gt=0, le=1e6)
    rounds: int = Field(default=200, ge=1, le=10_000_000)
    topology: Topology = Ring()
    combination: Combination = "metropolis"
    noise: Literal["none", "random", "random_own_term", "homomorphic"] | None = None
    gradient_at: Literal["released", "hidden"] | None = None
    temporal: Literal["independent", "random_walk", "sqrt_toeplitz", "banded"] | None = None
    bands: int | None = Field(default=None, ge=1)
    synchronous: bool = True
    timeout: PositiveFloat | None = None
    patience: float = Field(default=60.0, ge=1e-3)
    masking: Annotated[Masking, bare("name")] = Masking()
    consensus: int = Field(default=0, ge=0, le=10_000)
    aggregation: Aggregation = None

    def _problems(self) -> Iterator[str]:
        listed, least = isinstance(self.agents, tuple), min(self.sizes, default=0)
        examples = _most(self.local_steps) * _most(self.batch_size)
        rules = {
            "units": listed and len(self.sizes) != self.units,
            "agents": self.nodes > MOST_AGENTS,
            "sampled": self.agents_sampled is not None and self.agents_sampled > least,
            "steps": isinstance(self.local_steps, tuple) and self.local_steps[0] > self.local_steps[1],
            "batches": isinstance(self.batch_size, tuple) and self.batch_size[0] > self.batch_size[1],
            "examples": examples > MOST_EXAMPLES,
            "random and released": self.random and self.gradient_at == "released",
            "random and correlated": self.random and (self.temporal not in (None, "independent") or self.consensus),
            "bands": (self.temporal == "banded") != (self.bands is not None),
            "robust": self.aggregation is not None and (self.consensus or self.masking.name == "secure"),
        }
        facts = {"listed": len(self.sizes), "least": least, "examples": examples}
        return refusals(__file__, rules, s=self, most=(MOST_AGENTS, MOST_EXAMPLES), **facts)

    @property
    def sizes(self) -> tuple[int, ...]:
        """K_p of each unit."""
        return self.agents if isinstance(self.agents, tuple) else (self.agents,) * self.units

    @property
    def nodes(self) -> int:
        """Agents of all units."""
        return sum(self.agents) if isinstance(self.agents, tuple) else self.agents * self.units

    @property
    def sampled(self) -> tuple[int, ...]:
        """L of each unit."""
        return self.sizes if self.agents_sampled is None else (self.agents_sampled,) * self.units

    @property
    def updates_per_node(self) -> int:
        """Rounds of each server."""
        return self.rounds

    @property
    def random(self) -> bool:
        """Whether every link has noise of its own."""
        return self.noise in _RANDOM

    @property
    def noises_own_term(self) -> bool:
        """Whether a server's own term in a combination has noise of its own, too."""
        return self.noise == "random_own_term"

    def decided(self, private: bool) -> Self:
        """Fill in the defaults that depend on whether there is noise."""
        noise = self.noise or ("homomorphic" if private else "none")
        where = self.gradient_at or ("hidden" if noise in _RANDOM else "released")
        return self.model_copy(update={"noise": noise, "gradient_at": where})

    def unit(
        self, server: str, sampled: int, size: int, clip: float, agent_noise: float = 0.0, run: str = ""
    ) -> SecureUnit:
        """Masking of updates of ``size`` numbers in the unit of ``server``, ``sampled`` of them a round.

        Agents sign their keys for the deployed ``run``, if it has a name.

        Raises
        ------
        CallerError
            If clip, agents and the settings of `Masking` do not fit together, or cryptography is missing.
        """
        reach = self.step_size * clip
        return self.masking.unit(server, reach, sampled, size, agent_noise=agent_noise, run=run, confined=True)


def servers(settings: Settings) -> tuple[str, ...]:
    """The servers, in the order of their units."""
    width = len(str(settings.units - 1))
    return tuple(f"server-{number:0{width}d}" for number in range(settings.units))


def drawn(span: int | tuple[int, int], seed: int, name: str, count: int) -> tuple[int, ...]:
    """A number for each of ``count`` agents: the same, or drawn from the span by public coins."""
    if isinstance(span, int):
        return (span,) * count
    low, high = span
    return tuple(stream(seed, "graph_federated", name).integers(low, high, count, endpoint=True).tolist())


def _most(span: int | tuple[int, int]) -> int:
    return span if isinstance(span, int) else span[1]


class Sampling:
    """L of a unit's agents for each round: everyone can follow the draws, which depend on no data.

    Parameters
    ----------
    seed : int
        Seed of the run's public randomness.
    server : str
        Server of the unit.
    agents : tuple of str
        Agents of the unit.
    sampled : int
        L.
    """

    def __init__(self, seed: int, server: str, agents: tuple[str, ...], sampled: int) -> None:
        self.server, self.agents, self.sampled = server, agents, sampled
        self._coins = Stream(seed, "graph_federated", server, "agents")

    def of(self, round: int) -> tuple[str, ...]:
        """Agents that take part in ``round``, in the order of the unit's agents."""
        return draw(self._coins, self.agents, self.sampled, round)


def units_of(settings: Settings, names: tuple[str, ...], seed: int = 0) -> list[Sampling]:
    """The units, whose agents have consecutive numbers, by the seed of the run's public randomness."""
    found, start = [], 0
    for server, size, sampled in zip(servers(settings), settings.sizes, settings.sampled, strict=True):
        found.append(Sampling(seed, server, names[start : start + size], sampled))
        start += size
    return found


class Rounds(Batches):
    """The workload: T rounds, which no number of epochs or updates cuts short."""

    def updates_in(self, epochs: float) -> Mapping[str, int]:
        raise SpecError("graph_federated ends after algorithm.rounds, the same for all servers; leave stop.epochs out")


def workload(settings: Settings, shard_sizes: Mapping[str, int], seed: int) -> Rounds:
    """Mini-batches of each agent."""
    sizes = drawn(settings.batch_size, seed, "batch_size", len(shard_sizes))
    return Rounds(dict(zip(shard_sizes, sizes, strict=True)), shard_sizes, settings.rounds, passes=True)


def local_queries(
    settings: Settings, shard_sizes: Mapping[str, int], seed: int, clips: Mapping[str, float]
) -> dict[str, LocalQuery]:
    """Questions for the updates of each agent, by its clip and public coins."""
    steps = drawn(settings.local_steps, seed, "local_steps", len(shard_sizes))
    batches = workload(settings, shard_sizes, seed)
    return {
        name: LocalQuery(count, batches.of(name, 0), settings.step_size, clips[name])
        for name, count in zip(shard_sizes, steps, strict=True)
    }


def check(settings: Settings, spec: Spec) -> Iterator[str]:
    """The rules that a spec breaks, a line each: of noise between servers, and of what has no place here."""
    privacy, budget, stop = spec.privacy, spec.budget, spec.stop
    private, masked, noiseless = spec.private, settings.masking.name == "secure", settings.noise == "none"
    amount, by_agents = privacy.standard_deviation is not None, privacy.agent_noise is not None
    alone = noiseless and by_agents
    more = "a budget" if budget else "a standard_deviation" if amount else f"mechanism: {privacy.mechanism}"
    rules = {
        "multiplier": privacy.noise_multiplier is not None,
        "epsilon": privacy.epsilon is not None,
        "no noise": private and noiseless and not alone,
        "no law": not private and not noiseless,
        "no amount": private and not budget and not amount and not alone,
        "two amounts": private and budget and amount,
        "several budgets": budget and isinstance(budget.epsilon, tuple),
        "no clip": budget and isinstance(privacy.clip, NoClip),
        "not replaced": privacy.relation is not NeighboringRelation.REPLACE_ONE,
        "sampled otherwise": privacy.sampling != "poisson",  # the default, which nobody need have said
        "agents without a law": by_agents and not private,
        "agents without masks": by_agents and private and not masked,
        "agents alone": alone and private and masked and (budget or amount or privacy.mechanism != "gaussian"),
        "epochs": stop.epochs is not None,
        "updates": stop.updates is not None,
    }
    return refusals(__file__, rules, s=settings, privacy=privacy, more=more)


def combination(settings: Settings, graph: Graph) -> FloatArray:
    """A, [units, units]: symmetric, doubly stochastic, connected, with a_pp > 0.

    Parameters
    ----------
    settings : Settings
        Names a rule or gives the matrix.
    graph : Graph
        Graph of the servers, for a rule.

    Raises
    ------
    TopologyError
        If the matrix is not such a matrix; the message names the rows.

    References
    ----------
    "Privatized graph federated learning", Assumption 1.
    """
    rows = settings.combination
    matrix: FloatArray = metropolis(graph).toarray() if isinstance(rows, str) else _given(rows, settings.units)
    different = np.argwhere(np.abs(matrix - matrix.T) > 1e-9)
    if different.size:
        p, m = different[0]
        raise TopologyError(
            f"algorithm.combination must be symmetric, found {matrix[p, m]:g} in row {p}, column {m} and "
            f"{matrix[m, p]:g} in row {m}, column {p}"
        )
    with beginning("algorithm.combination", TopologyError):
        check_doubly_stochastic(matrix)
        check_connected(matrix)
    fewest, robust = int(np.count_nonzero(matrix, axis=1).min()), settings.aggregation
    if robust is not None and fewest < robust.least:
        raise TopologyError(
            f"algorithm.aggregation: {robust.name} takes {robust.least} models or more, and a server with "
            f"{fewest - 1} neighbours has {fewest}; join it to more"
        )
    without = np.flatnonzero(np.diagonal(matrix) <= 0)
    if without.size:
        raise TopologyError(
            f"algorithm.combination must give each server's own model a weight above 0, as its noise is taken back "
            f"there; found {matrix[without[0], without[0]]:g} for server {without[0]}"
        )
    return matrix


def _given(rows: tuple[tuple[float, ...], ...], units: int) -> FloatArray:
    lengths = {len(row) for row in rows}
    if len(rows) != units or lengths != {units}:
        raise TopologyError(
            f"algorithm.combination must be a matrix of {units} rows of {units} weights, found {len(rows)} rows of "
            f"{' or '.join(map(str, sorted(lengths))) or 'no'} weights"
        )
    return np.array(rows, np.float64)
