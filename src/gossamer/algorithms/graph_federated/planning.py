"""Noise between the servers of federated units, and what is then guaranteed.

Every server makes as many rounds as the settings say, or fewer if something ends the run before; which never depends on
how many were planned. So the plan is that of all rounds: one stream of noise a unit, opened before the first round.
The noise is what the spec gives, or the least that its budget needs; how it goes from round to round is what the
settings say, or with a budget what disturbs the models least (`graph_federated.noise`).

Where units sample different numbers of agents, one agent moves more in some than in others: the noise is that of the
unit where one moves most, and each agent's own epsilon is reported.

*Noise of agents alone.* Where servers add none, all that leaves a unit follows from masked sums, to which each agent
has added noise of its own. So what is proved of these against the own server (`own_server_guarantee`) holds against
everybody: it relies on no mask, and models that an agent is asked about may depend on all that was seen before.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gossamer.algorithms.graph_federated import noise as noises
from gossamer.algorithms.graph_federated.guarantees import UNITS, Masks, graph_guarantees, no_guarantees, proved_epsilon
from gossamer.algorithms.graph_federated.settings import Sampling, Settings, combination, local_queries, units_of
from gossamer.algorithms.persons import asked
from gossamer.algorithms.plan import Plan, Problem, Words
from gossamer.arrays import FloatArray
from gossamer.errors import SpecError, counted
from gossamer.privacy.guarantees import CODE, EXAMPLES, SIMULATED_NOISE, Guarantee, remarked
from gossamer.privacy.mechanisms import Mechanism, NoNoise
from gossamer.privacy.streams import graph_bounds
from gossamer.privacy.streams.correlated_noise import CorrelatedNoise, Factorisation, NoiseLaw, StreamKind, Temporal
from gossamer.privacy.streams.graph_bounds import UpdateBound
from gossamer.sides.ledger import Ledger
from gossamer.sides.plan import ClientUpdate, MaskedMember, SidePlan, StreamPlan

if TYPE_CHECKING:
    from gossamer.sides.secure_unit import SecureUnit

RUN_ASSUMPTIONS = (
    "numbers of features and classes, the choice of test examples and who belongs to which unit do not depend on the "
    "data either",
    CODE,
    EXAMPLES,
    "figures of servers' own models and distances from the best model, in the metrics of a simulation, are not covered",
    SIMULATED_NOISE,
)
"""Of a run's guarantees, beside those of graph federated learning."""


AgentSums = tuple[graph_bounds.AgentNoise, int]
"""Noise that an agent adds itself to each masked sum, and the number of sums that public coins draw it for."""


@dataclass(frozen=True)
class UnitTerms:
    """Terms planned for one unit.

    Attributes
    ----------
    sampling : Sampling
        Its server, and the draws of its agents.
    stream : StreamKind
        Stream of its server.
    links : int
        Records of a round.
    noise : Noise or None
        Noise that its messages carry.
    bound : UpdateBound or None
        Bound on how far one change moves its updates; None where nothing is proved.
    masks : SecureUnit or None
        Way in which its agents mask their updates, if they do.
    """

    sampling: Sampling
    stream: StreamKind
    links: int
    noise: graph_bounds.Noise | None
    bound: UpdateBound | None
    masks: SecureUnit | None

    def sums(self, rounds: int) -> dict[str, AgentSums]:
        """Noise that each agent adds itself, and how often in so many ``rounds``; of no agent where none does."""
        if self.masks is None or self.masks.noise is None:
            return {}
        of, noise = self.sampling, self.masks.noise
        if of.sampled == len(of.agents):
            return dict.fromkeys(of.agents, (noise, rounds))
        drawn = Counter(agent for number in range(rounds) for agent in of.of(number))
        return {agent: (noise, drawn[agent]) for agent in of.agents}

    def epsilon(self, rounds: int, delta: float) -> float:
        """Proved of the messages of the first ``rounds``; infinite where nothing is."""
        if self.noise is None or self.bound is None:
            return math.inf
        return proved_epsilon(first_rounds(self.noise, rounds), self.bound, self.stream.size, delta) if rounds else 0.0

    def side(self, longest: float, guarantee: Guarantee, lengths: graph_bounds.ModelLengths | None) -> StreamPlan:
        """Plan of what leaves the unit, whose updates are so long at most, that of one change aside."""
        noise, bound, size, agents = self.noise, self.bound, self.stream.size, self.sampling.agents
        proved: dict[str, float] = {}
        if noise is not None and bound is not None:
            proved = {"mu" if noise.law is NoiseLaw.GAUSSIAN else "epsilon": noises.privacy_loss(noise, bound, size)}
        return StreamPlan(
            self.stream.noise,
            self.stream.records,
            size,
            None if bound is None else bound.moved,
            1 if bound is None else bound.agents_sampled,
            longest,
            agents,
            scope=frozenset((self.sampling.server, *agents)),
            unit=guarantee.unit,
            observer=guarantee.observer,
            lengths=lengths,
            **proved,
        )


def first_rounds(noise: graph_bounds.Noise, rounds: int) -> graph_bounds.Noise:
    """The noise of the first ``rounds``, at least 1: what it moves is the beginning of C 1."""
    if isinstance(noise, graph_bounds.RandomNoise):
        return replace(noise, rounds=rounds)
    whole = noise.factorisation
    # As many rounds are left after the others: the same kernel, cut off.
    return replace(noise, factorisation=whole.after_loss(whole.rounds - rounds))


def plan_units(problem: Problem[Settings]) -> Plan:
    """Fix noise and guarantees of federated units.

    Raises
    ------
    SpecError
        If a value is out of its range, or there is no other unit to protect anybody from.
    TopologyError
        If the combination matrix cannot carry the algorithm.
    AccountingError
        If the budget is out of its range.
    """
    spec, settings = problem.spec, problem.settings
    matrix = combination(settings, problem.graph)
    clip = math.inf if spec.privacy.clip is None else spec.privacy.clip.initial_bound
    assert clip is not None  # the policies that these nodes follow have one
    mechanisms: dict[str, Mechanism] = dict.fromkeys(problem.names, NoNoise(clip))
    problem.check(mechanisms)
    noise = None if settings.noise == "none" else planned_noise(problem, matrix, clip)
    alone = noise is None and spec.private
    units = unit_terms(problem, noise, clip)
    added = {agent: sums for unit in units.values() for agent, sums in unit.sums(settings.rounds).items()}
    lengths, advice = planned_lengths(problem, noise, clip, units)
    own = own_servers(added, spec.delta)
    guarantees = _guarantees(problem, noise, clip, own)
    first, longest = next(iter(guarantees.values())), _longest(problem, clip)
    streams: dict[str, SidePlan] = {server: unit.side(longest, first, lengths) for server, unit in units.items()}
    # Rounds of all servers, those of averaging at the end included.
    updates = (settings.rounds + settings.consensus) * len(units)
    line = f"{counted(updates, 'update')} of {counted(len(units), 'unit')} in {counted(settings.rounds, 'round')}, "
    figures: dict[str, Any] = {}
    scheme, law = "none", f"noise of agents alone ({spec.privacy.agent_noise:g} updates)" if alone else "no noise"
    if noise is not None:
        scheme, how = (
            ("random", "")
            if isinstance(noise, graph_bounds.RandomNoise)
            else ("homomorphic", noise.factorisation.temporal)
        )
        law = f"{scheme} {noise.law} noise ({how and f'{how}, '}standard deviation {noise.standard_deviation:.4g})"
        if settings.aggregation is None:  # what is left of it in models is known of averages that are linear
            where, own_term = _where(settings), settings.noises_own_term
            expected = noises.model_noise(noise, matrix, problem.size, where, own_term=own_term).figures
            figures["expected_noise"] = expected
            law += f"; expected network disagreement {expected['disagreement']:.4g}"
    radius = math.inf if lengths is None else lengths.radius
    if math.isfinite(radius):
        figures["masked_model_radius"] = radius
    described = [unit.stream.describe() for unit in units.values()]
    # Numbers of records may differ between units.
    common = {key: value for key, value in described[0].items() if all(other[key] == value for other in described)}
    alike = {(unit.noise, unit.bound): unit for unit in units.values()}
    proved = {key: unit.epsilon(settings.rounds, spec.delta) for key, unit in alike.items()}
    epsilons = {agent: proved[unit.noise, unit.bound] for unit in units.values() for agent in unit.sampling.agents}
    spent: Callable[[Iterable[Ledger]], float | None] = partial(_spent, problem, units, first)
    if alone:
        epsilons = {name: guarantee.epsilon for name, guarantee in own.items()}
        spent = partial(_spent_by_agents, problem, added)
    return Plan(
        stop=spec.stop,
        quotas=None,  # rounds are the algorithm's own
        mechanisms=mechanisms,
        epsilons=epsilons,
        guarantees=guarantees,
        sides=streams | agent_plans(problem, clip, radius, units, streams, added),
        releases={agent: unit.stream.records for unit in units.values() for agent in unit.sampling.agents},
        updates=updates,
        noise=described,
        figures={"mechanism": {**common, "noise": scheme, "rounds": settings.rounds}, **figures},
        words=Words(plan=line + law, advice=advice),
        spent=spent,
    )


def _longest(problem: Problem[Settings], clip: float) -> float:
    """The most L2 norm of a round's update, that of one change left aside."""
    longest, agent_noise = problem.settings.step_size * clip, problem.spec.privacy.agent_noise
    if not agent_noise:
        return longest
    # What agents add is in a sum, too, in every coordinate, up to the range of the integers.
    from gossamer.sides.secure_unit import TAIL

    return longest * ((1 + TAIL * agent_noise) * math.sqrt(problem.size))


def _spent(
    problem: Problem[Settings], units: Mapping[str, UnitTerms], guarantee: Guarantee, ledgers: Iterable[Ledger]
) -> float | None:
    """Epsilon of the rounds that have begun to be released, against other units."""
    if not math.isfinite(guarantee.epsilon) or problem.spec.reproducible:
        return None
    begun: dict[tuple[graph_bounds.Noise | None, UpdateBound | None], tuple[int, UnitTerms]] = {}
    for ledger in ledgers:
        if ledger.owner not in units:
            continue  # an agent's own noise protects it from its own server
        unit = units[ledger.owner]
        rounds = -(-ledger.releases // unit.links)
        key = unit.noise, unit.bound
        begun[key] = max(rounds, begun.get(key, (0, unit))[0]), unit
    return max((unit.epsilon(rounds, problem.spec.delta) for rounds, unit in begun.values()), default=0.0)


def _spent_by_agents(
    problem: Problem[Settings], added: Mapping[str, AgentSums], ledgers: Iterable[Ledger]
) -> float | None:
    """Epsilon of the sums so far, where agents alone add noise, of the agent that has spent most."""
    if problem.spec.reproducible:
        return None
    made = {(added[one.owner][0], one.releases) for one in ledgers if one.owner in added}
    return max((graph_bounds.own_server_guarantee(*sums, problem.spec.delta).epsilon for sums in made), default=0.0)


def planned_noise(problem: Problem[Settings], matrix: FloatArray, clip: float) -> graph_bounds.Noise:
    """Noise that the spec gives, or the least that its budget needs."""
    spec, settings = problem.spec, problem.settings
    if settings.units == 1:
        raise SpecError(
            "algorithm.units: 1 sends no message to another unit, so noise protects nobody; take 2 units or more, or "
            "say privacy: none"
        )
    law = NoiseLaw(spec.privacy.mechanism)
    deviation = spec.privacy.standard_deviation
    if deviation is not None:
        if settings.random:
            return graph_bounds.RandomNoise(settings.rounds, deviation, noises.links_of(matrix), law)
        return CorrelatedNoise(_factorisation(settings), deviation, law)
    assert spec.budget is not None  # the spec checks it
    assert isinstance(spec.budget.epsilon, float)
    wanted = noises.NoiseProblem(
        spec.budget.epsilon,
        spec.budget.delta,
        settings.rounds,
        _bound(settings, clip, min(settings.sampled)),
        problem.size,
        matrix,
        measure=noises.Measure.MEAN,
        law=law,
    )
    if settings.random:
        return noises.least_noise(graph_bounds.RandomNoise(settings.rounds, 1.0, noises.links_of(matrix), law), wanted)
    among = None if settings.temporal is None else (_factorisation(settings),)
    return noises.plan_noise(wanted, among)[0].noise


def _factorisation(settings: Settings) -> Factorisation:
    return Factorisation(Temporal(settings.temporal or "independent"), settings.rounds, settings.bands)


def _bound(settings: Settings, clip: float, sampled: int) -> UpdateBound:
    """Bound on how far one change moves an update of a unit that samples so many agents a round."""
    return UpdateBound(settings.step_size, clip, sampled, _where(settings))


def _where(settings: Settings) -> graph_bounds.GradientAt:
    assert settings.gradient_at is not None  # it is decided with the spec
    return graph_bounds.GradientAt(settings.gradient_at)


def unit_terms(problem: Problem[Settings], noise: graph_bounds.Noise | None, clip: float) -> dict[str, UnitTerms]:
    """Terms planned for each unit, by its server.

    Raises
    ------
    CallerError
        If the settings of masks do not fit together, or cryptography is missing.
    """
    settings, size, found = problem.settings, problem.size, {}
    bounded, agent_noise = noise is not None and math.isfinite(clip), problem.spec.privacy.agent_noise or 0.0
    for number, unit in enumerate(units_of(settings, problem.names, problem.seed)):
        bound = _bound(settings, clip, unit.sampled) if bounded else None
        if isinstance(noise, graph_bounds.RandomNoise):
            drawn: CorrelatedNoise | None
            own: graph_bounds.Noise | None = replace(noise, links=(noise.links[number],))
            links = noise.links[number][1] + settings.noises_own_term
            records = settings.rounds * links
            drawn = CorrelatedNoise(Factorisation(Temporal.INDEPENDENT, records), noise.standard_deviation, noise.law)
        else:
            own, links, records, drawn = noise, 1, settings.rounds, noise
        masks = None
        if settings.masking.name == "secure":
            masks = settings.unit(unit.server, unit.sampled, size, clip, agent_noise, problem.run)
        found[unit.server] = UnitTerms(unit, StreamKind(drawn, records, size), links, own, bound, masks)
    return found


def own_servers(added: Mapping[str, AgentSums], delta: float) -> dict[str, Guarantee]:
    """Guarantee of each agent that adds noise towards its own server: `own_server_guarantee`."""
    found = {sums: graph_bounds.own_server_guarantee(*sums, delta) for sums in set(added.values())}
    return {name: found[sums] for name, sums in added.items()}


def _guarantees(
    problem: Problem[Settings], noise: graph_bounds.Noise | None, clip: float, own: Mapping[str, Guarantee]
) -> dict[str, Guarantee]:
    """Guarantees by observer, of the unit where one change moves most; ``own`` are agents' towards their servers."""
    settings = problem.settings
    masks: Masks = "none" if settings.masking.name == "none" else "signed" if problem.run else "trusted"
    own_server = max(own.values(), key=lambda guarantee: guarantee.epsilon, default=None)
    if noise is None and own_server is not None:
        return _of_runs(problem, {"own_server": own_server})
    if noise is None or not math.isfinite(clip):
        reason = "privacy.clip: none (nothing bounds an update, so noise proves nothing)"
        if noise is None:
            reason = "privacy: none (nothing is noised, so messages may reveal updates)"
        return no_guarantees(_where(settings), reason, masks)
    bound = _bound(settings, clip, min(settings.sampled))
    found = graph_guarantees(noise, bound, problem.size, problem.spec.delta, masks)
    if own_server is not None:
        found["own_server"] = own_server
        if settings.gradient_at == "hidden":  # the server's own state has that noise, too
            found["own_agents"] = found["own_server"]
    return _of_runs(problem, found)


def _of_runs(problem: Problem[Settings], found: dict[str, Guarantee]) -> dict[str, Guarantee]:
    """Guarantees with what a run assumes, and remarks."""
    for observer, guarantee in found.items():
        if math.isfinite(guarantee.epsilon):
            more = (*guarantee.assumptions, *_of_persons(problem, guarantee), *RUN_ASSUMPTIONS)
            found[observer] = replace(guarantee, assumptions=more)
    examples = min(problem.shard_sizes.values())
    return {observer: remarked(guarantee, examples) for observer, guarantee in found.items()}


def _of_persons(problem: Problem[Settings], guarantee: Guarantee) -> tuple[str, ...]:
    """Lines on what a guarantee for agents or units says of persons, where the budget asks."""
    if not asked(problem.spec):
        return ()
    # Where an agent's own noise counts, another agent of its unit is another place.
    holdings, hidden = problem.holdings, guarantee.unit == UNITS[graph_bounds.GradientAt.HIDDEN]
    unit = "unit" if hidden else "agent"
    units = units_of(problem.settings, problem.names)
    place = [one.server if hidden else agent for one in units for agent in one.agents]
    for held in holdings.held if holdings is not None else ():
        if len({place[node] for node, _ in held}) > 1:
            raise SpecError(
                f"dataset.person: persons have examples at several {unit}s, and what is proved is for one {unit}; "
                "keep them together (partition: by_person), or leave budget.rows_per_person out"
            )
    return (f"what protects the {unit} protects all examples that a person has there, however many",)


def agent_plans(
    problem: Problem[Settings],
    clip: float,
    radius: float,
    units: Mapping[str, UnitTerms],
    behind: Mapping[str, SidePlan],
    added: Mapping[str, AgentSums],
) -> dict[str, SidePlan]:
    """Plans of what leaves the data of each agent, which hides its updates as the settings say.

    Parameters
    ----------
    problem : Problem
        Problem that is planned for.
    clip : float
        B, of mean gradients.
    radius : float
        Most L2 norm of a model that agents of masked sums make updates at.
    units : mapping of str to UnitTerms
        Terms of each unit, by its server.
    behind : mapping of str to SidePlan
        Plan of what leaves each unit, by its server.
    added : mapping of str to AgentSums
        Noise of those agents that add some themselves.
    """
    settings, found, terms = problem.settings, dict[str, SidePlan](), None
    if settings.masking.name == "secure":
        # Masks need cryptography, which is optional, so what does is imported only where masks are wanted.
        from gossamer.sides.secure_unit import RoundTerms

        queries = local_queries(settings, problem.shard_sizes, problem.seed, dict.fromkeys(problem.names, clip))
        terms = RoundTerms(problem.agreed, queries, settings.rounds, radius)  # the same at each agent
    for server, unit in units.items():
        agents = unit.sampling.agents
        shown: dict[str, Any] = {"scope": frozenset((server, *agents)), "behind": behind[server]}
        for name in agents:
            if unit.masks is None or terms is None:
                found[name] = ClientUpdate(**shown)
            else:
                sums = added[name][1] if name in added else 0
                found[name] = MaskedMember(unit.masks, unit.sampling.of, terms, sums, **shown)
    return found


def planned_lengths(
    problem: Problem[Settings], noise: graph_bounds.Noise | None, clip: float, units: Mapping[str, UnitTerms]
) -> tuple[graph_bounds.ModelLengths | None, tuple[str, ...]]:
    """Lengths that an honest run does not exceed, with the spec's radius if it has one; None where nothing is masked.

    Returns
    -------
    tuple of ModelLengths or None, and tuple of str
        With a line on the radius, if the spec's is smaller than what is proved of honest runs.

    Raises
    ------
    SpecError
        If the common starting model is beyond it.
    """
    settings = problem.settings
    if settings.masking.name != "secure":
        return None, ()
    start = float(np.linalg.norm(np.asarray(problem.initial.values, np.float64)))
    # Standard deviation of a coordinate of what agents add to the mean of a round, in the unit where it is most.
    most = max(
        0.0
        if (of := unit.masks) is None or of.noise is None
        else of.noise.scale * of.fixed.resolution / math.sqrt(of.group.size)
        for unit in units.values()
    )
    moved, size = settings.step_size * clip, problem.size
    proved = graph_bounds.model_lengths(start, moved, settings.rounds, size, settings.units, noise, most)
    given = settings.masking.radius
    if given is None:
        return proved, ()
    if given < start:
        raise SpecError(
            f"algorithm.masking.radius is {given:g} and the starting model is {start:g} from zero, so no agent would "
            "take part; raise it or leave it out"
        )
    lengths = replace(proved, radius=given)
    if given >= proved.radius:
        return lengths, ()
    line = (
        f"algorithm.masking.radius is {given:g}, and the models of an honest run are proved to stay within "
        f"{proved.radius:.4g} only: agents take no part beyond the radius, so servers shorten what they ask about to "
        "it; raise it if models get that far"
    )
    return lengths, (line,)
