"""Settings of `graph_federated`, and who is in which unit."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    PositiveFloat,
    PositiveInt,
    Tag,
    model_validator,
)

from gossamer.algorithms.graph_federated.masking_settings import Masking
from gossamer.randomness import stream
from gossamer.section import Composite
from gossamer.topology.settings import Ring, Topology

_ONE_OR_MORE = Discriminator(lambda value: "[more]" if isinstance(value, (list, tuple)) else "[one]")
Agents = Annotated[
    Annotated[PositiveInt, Tag("[one]")] | Annotated[tuple[PositiveInt, ...], Tag("[more]")], _ONE_OR_MORE
]
"""A number for all units, or a list with one for each."""
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Span = Annotated[Annotated[Count, Tag("[one]")] | Annotated[tuple[Count, Count], Tag("[more]")], _ONE_OR_MORE]
"""A number for all agents, or the least and the most, of which each agent draws its own."""
Combination = Annotated[
    Annotated[Literal["metropolis"], Tag("[one]")] | Annotated[tuple[tuple[float, ...], ...], Tag("[more]")],
    _ONE_OR_MORE,
]
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
        Who is whose neighbour among the servers.
    combination : "metropolis" or matrix
        a_pm, how servers combine: Metropolis-Hastings weights of the topology, or a symmetric doubly stochastic matrix
        with a_pp > 0, whose other entries above 0 are the edges.
    noise : {"none", "random", "random_own_term", "homomorphic"}, optional
        What is added to messages between servers. ``random``: noise of its own on every link. ``random_own_term``: on
        the server's own term too, which never leaves it, as in the paper's equation 8. ``homomorphic``: the same on all
        links of a server, which takes it back in its own term. By default homomorphic where there is privacy.
    gradient_at : {"released", "hidden"}, optional
        Where agents take gradients: at what follows from messages, or at the server's own state. By default released,
        and hidden with random noise.
    temporal : {"independent", "random_walk", "sqrt_toeplitz", "banded"}, optional
        How the noise of one round goes with that of earlier ones. By default, the planner's choice for a budget, and
        else independent.
    bands : int, optional
        Of ``banded``.
    synchronous : bool
        Whether a server waits for its neighbours' messages of the round, or combines with the newest that it has.
    timeout : float, optional
        Seconds after which a round goes on without the agents that have not answered. By default only agents that are
        known to be away are not waited for.
    patience : float
        Seconds after which peers that a server waits for are asked whether they are there, then twice as many, and so
        on.
    masking : masking
        How agents hide their updates from their own server: ``none`` or ``secure``; or a noise of the paper that hides
        nothing which can be stated, ``pairwise_noise`` or ``independent_noise``.
    consensus : int
        Rounds of averaging of the last messages, at the end.
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
    masking: Annotated[Masking, BeforeValidator(lambda value: {"name": value} if isinstance(value, str) else value)] = (
        Masking()
    )
    consensus: int = Field(default=0, ge=0, le=10_000)

    @model_validator(mode="after")
    def _units_fit(self) -> Self:
        if isinstance(self.agents, tuple) and len(self.agents) != self.units:
            raise ValueError(f"agents: expected a number for each of {self.units} units, found {len(self.agents)}")
        if self.nodes > MOST_AGENTS:
            raise ValueError(f"agents: expected at most {MOST_AGENTS:,} in all units together, found {self.nodes:,}")
        if self.agents_sampled is not None and self.agents_sampled > min(self.sizes):
            raise ValueError(
                f"agents_sampled {self.agents_sampled} (L) is more than the {min(self.sizes)} agents of the smallest "
                "unit; lower it"
            )
        for name in ("local_steps", "batch_size"):
            span = getattr(self, name)
            if isinstance(span, tuple) and span[0] > span[1]:
                raise ValueError(f"{name}: expected the least number first, found {list(span)}")
        examples = _most(self.local_steps) * _most(self.batch_size)
        if examples > MOST_EXAMPLES:
            raise ValueError(
                f"local_steps times batch_size is {examples:,} examples of an agent in a round, expected at most "
                f"{MOST_EXAMPLES:,}; have more rounds instead"
            )
        return self

    @model_validator(mode="after")
    def _noise_fits(self) -> Self:
        if self.random and self.gradient_at == "released":
            raise ValueError(
                "with random noise each neighbour gets another message, so there is no released model to take "
                "gradients at; use gradient_at: hidden"
            )
        if self.random and (self.temporal not in (None, "independent") or self.consensus):
            raise ValueError(
                "random noise is independent, and leaves no common last message: temporal and consensus "
                "are for homomorphic noise"
            )
        if (self.temporal == "banded") != (self.bands is not None):
            raise ValueError("bands belong to temporal: banded; give both or neither")
        return self

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

    @property
    def noiseless(self) -> bool:
        """Whether this is the algorithm without noise."""
        return self.noise == "none"

    def decided(self, private: bool) -> Self:
        """Fill in the defaults that depend on whether there is noise."""
        noise = self.noise or ("homomorphic" if private else "none")
        where = self.gradient_at or ("hidden" if noise in _RANDOM else "released")
        return self.model_copy(update={"noise": noise, "gradient_at": where})


def servers(settings: Settings) -> tuple[str, ...]:
    """The servers, in the order of their units."""
    width = len(str(settings.units - 1))
    return tuple(f"server-{number:0{width}d}" for number in range(settings.units))


def units_of(settings: Settings, names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The agents of each server; units have agents with consecutive numbers."""
    found, start = {}, 0
    for server, size in zip(servers(settings), settings.sizes, strict=True):
        found[server] = names[start : start + size]
        start += size
    return found


def server_of(settings: Settings, names: tuple[str, ...]) -> dict[str, str]:
    """The server of each agent."""
    return {agent: server for server, agents in units_of(settings, names).items() for agent in agents}


def drawn(span: int | tuple[int, int], seed: int, name: str, count: int) -> tuple[int, ...]:
    """A number for each of ``count`` agents: the same, or drawn from the span by public coins."""
    if isinstance(span, int):
        return (span,) * count
    low, high = span
    return tuple(stream(seed, "graph_federated", name).integers(low, high, count, endpoint=True).tolist())


def _most(span: int | tuple[int, int]) -> int:
    return span if isinstance(span, int) else span[1]
