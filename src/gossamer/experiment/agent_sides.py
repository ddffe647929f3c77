"""The data sides of the agents of federated units, and what is proved of them towards their own servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gossamer.algorithms.graph_coins import Sampling
from gossamer.algorithms.graph_settings import Settings, units_of
from gossamer.errors import DataError, SpecError
from gossamer.experiment.masked_terms import masked_terms, masked_unit
from gossamer.experiment.prepare import Prepared, public_seed
from gossamer.objectives.objective import IndexArray
from gossamer.privacy.agent_noise import AgentLedger, AgentNoise, AnyAgentLedger, own_server_guarantee
from gossamer.privacy.guarantees import Guarantee
from gossamer.privacy.pairwise_side import PairwiseNoiseSide
from gossamer.privacy.round_mark import RoundMark
from gossamer.privacy.unit_side import AgentSide

if TYPE_CHECKING:
    from gossamer.privacy.masked_side import Signing
    from gossamer.privacy.round_terms import RoundTerms

Make = Callable[[str, IndexArray], AgentSide]


def agent_sides(prepared: Prepared, seed: int, clip: float, agent_noise: float, radius: float) -> dict[str, AgentSide]:
    """A data side for each agent, which hides its updates as the settings say.

    Parameters
    ----------
    prepared : Prepared
        With settings of `graph_federated`.
    seed : int
        Of sampling, masks and noise: secret.
    clip : float
        B, of mean gradients.
    agent_noise : float
        What agents add inside masked sums, in units of an update's most length.
    radius : float
        Most L2 norm of a model that agents of masked sums make updates at.

    Raises
    ------
    CallerError
        If the settings do not fit together, or cryptography is missing.
    """
    settings: Settings = prepared.experiment.algorithm  # type: ignore[assignment]
    shards = dict(zip(prepared.names, prepared.shards, strict=True))
    terms = masked_terms(prepared, settings, clip, radius) if settings.masking.name == "secure" else None
    found: dict[str, AgentSide] = {}
    for sampling in samplings(prepared, settings):
        make = _maker(prepared, settings, sampling, seed, clip, agent_noise, terms)
        found.update({name: make(name, shards[name]) for name in sampling.agents})
    return {name: found[name] for name in prepared.names}


def own_server(prepared: Prepared, clip: float, agent_noise: float, delta: float, honest: int = 1) -> Guarantee:
    """What is proved towards the own server, of the agent of which least is: `own_server_guarantee`.

    Raises
    ------
    CallerError
        If the settings do not fit together, or cryptography is missing.
    """
    settings: Settings = prepared.experiment.algorithm  # type: ignore[assignment]
    if not agent_noise:
        return own_server_guarantee(None, settings.rounds, delta)
    found = [
        own_server_guarantee(
            masked_unit(prepared, settings, sampling, clip, agent_noise).noise,
            max(rounds_sampled(sampling, settings.rounds).values()),
            delta,
            honest,
        )
        for sampling in samplings(prepared, settings)
    ]
    return max(found, key=lambda guarantee: guarantee.epsilon)


@dataclass(frozen=True)
class AgentCharges:
    """What an agent is charged for, where it adds noise: its ledger is opened for so many masked sums.

    Attributes
    ----------
    noise : AgentNoise
        Of each.
    most : int
        How many.
    """

    noise: AgentNoise
    most: int


def agent_charges(prepared: Prepared, name: str, clip: float, agent_noise: float) -> AgentCharges | None:
    """What agent ``name`` will be charged for at most; None if it adds no noise.

    Raises
    ------
    CallerError
        If the settings do not fit together, or cryptography is missing.
    """
    settings: Settings = prepared.experiment.algorithm  # type: ignore[assignment]
    if settings.masking.name != "secure":
        return None
    sampling = _sampling_of(prepared, settings, name)
    noise = masked_unit(prepared, settings, sampling, clip, agent_noise).noise
    return None if noise is None else AgentCharges(noise, rounds_sampled(sampling, settings.rounds)[name])


def deployed_agent_side(
    prepared: Prepared,
    name: str,
    clip: float,
    agent_noise: float,
    radius: float,
    ledger: AnyAgentLedger | None,
    mark: RoundMark | None,
    signing: Signing | None = None,
) -> AgentSide:
    """The data side of agent ``name`` in a process of its own, with the operating system's randomness.

    Parameters
    ----------
    prepared : Prepared
        With settings of `graph_federated`, and this agent's examples.
    name : str
        Of the agent.
    clip : float
        B, of mean gradients.
    agent_noise : float
        What agents add inside masked sums, in units of an update's most length.
    radius : float
        Most L2 norm of a model that agents of masked sums make updates at.
    ledger : AnyAgentLedger or None
        Needed if agents add noise.
    mark : RoundMark or None
        Needed where sums are masked.
    signing : Signing or None
        The agents' identities; needed where sums are masked, in a run that has a name.

    Raises
    ------
    SpecError
        If agents' noise is that of a paper's figures, which hides nothing.
    DataError
        If a ledger, a mark or identities are missing.
    """
    settings: Settings = prepared.experiment.algorithm  # type: ignore[assignment]
    shard = prepared.shards[prepared.names.index(name)]
    if settings.masking.name == "pairwise_noise":
        raise SpecError(
            "algorithm.masking: pairwise_noise hides nothing and is for a paper's figures, in simulations; deployed "
            "units take secure or none"
        )
    if settings.masking.name == "none":
        return AgentSide(name, shard, None)
    from gossamer.privacy.masked_side import MaskedSide

    if mark is None:
        raise DataError(f"{name}: an agent of masked sums needs a durable mark of the rounds it took part in")
    sampling = _sampling_of(prepared, settings, name)
    unit = masked_unit(prepared, settings, sampling, clip, agent_noise)
    terms = masked_terms(prepared, settings, clip, radius)
    return MaskedSide(name, shard, None, unit, sampling.of, terms, ledger, mark=mark, signing=signing)


def _sampling_of(prepared: Prepared, settings: Settings, name: str) -> Sampling:
    (found,) = [sampling for sampling in samplings(prepared, settings) if name in sampling.agents]
    return found


def samplings(prepared: Prepared, settings: Settings) -> list[Sampling]:
    """Who takes part when, for each unit."""
    seed = public_seed(prepared.experiment)
    units = units_of(settings, prepared.names).items()
    return [Sampling(seed, server, agents, sampled) for (server, agents), sampled in zip(units, settings.sampled)]


def rounds_sampled(sampling: Sampling, rounds: int) -> dict[str, int]:
    """In how many of the first ``rounds`` each agent takes part: public coins."""
    if sampling.sampled == len(sampling.agents):
        return dict.fromkeys(sampling.agents, rounds)
    counts = Counter(agent for number in range(rounds) for agent in sampling.of(number))
    return {agent: counts[agent] for agent in sampling.agents}


def _maker(
    prepared: Prepared,
    settings: Settings,
    sampling: Sampling,
    seed: int,
    clip: float,
    agent_noise: float,
    terms: RoundTerms | None,
) -> Make:
    masking = settings.masking
    if masking.name == "none":
        return lambda name, shard: AgentSide(name, shard, seed)
    if masking.name == "pairwise_noise":
        deviation = masking.standard_deviation
        assert deviation is not None  # the settings check it
        return lambda name, shard: PairwiseNoiseSide(name, sampling.server, shard, seed, sampling.of, deviation)
    # Masks need cryptography, which is optional, so it is imported only here.
    from gossamer.privacy.masked_side import MaskedSide

    assert terms is not None
    unit = masked_unit(prepared, settings, sampling, clip, agent_noise)
    rounds = rounds_sampled(sampling, settings.rounds) if unit.noise is not None else {}

    def masked(name: str, shard: IndexArray) -> MaskedSide:
        ledger = None if unit.noise is None else AgentLedger(name, unit.noise, rounds[name])
        return MaskedSide(name, shard, seed, unit, sampling.of, terms, ledger)

    return masked
