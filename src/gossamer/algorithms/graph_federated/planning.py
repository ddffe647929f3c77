"""Noise between the servers of federated units, and what is then guaranteed.

Every server makes as many rounds as the settings say, or fewer if something ends the run before; which never depends on
how many were planned. So the plan is that of all rounds: one stream of noise a unit, opened before the first round.
The noise is what the spec gives, or the least that its budget needs; how it goes from round to round is what the
settings say, or with a budget what disturbs the models least (`graph_federated.noise`).

Where units sample different numbers of agents, one agent moves more in some than in others: the noise is that of the
unit where one moves most, and each agent's own epsilon is reported.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gossamer.algorithms.graph_federated.guarantees import UNITS, graph_guarantees, no_guarantees, proved_epsilon
from gossamer.algorithms.graph_federated.noise import (
    Measure,
    ModelNoise,
    NoiseProblem,
    least_noise,
    links_of,
    model_noise,
    plan_noise,
    random_model_noise,
)
from gossamer.algorithms.graph_federated.settings import Settings, combination, server_of, units_of
from gossamer.algorithms.graph_federated.sides import agent_plans, own_server, planned_lengths
from gossamer.algorithms.plan import Plan, Words
from gossamer.algorithms.problem import Problem
from gossamer.algorithms.sample_noise import asked
from gossamer.arrays import FloatArray
from gossamer.errors import SpecError, counted
from gossamer.privacy.guarantees import CODE, EXAMPLES, SIMULATED_NOISE, Guarantee, remarked
from gossamer.privacy.mechanisms import Mechanism, NoNoise
from gossamer.privacy.streams.correlated_noise import Factorisation, Temporal
from gossamer.privacy.streams.graph_bounds import (
    GradientAt,
    Noise,
    RandomNoise,
    UpdateBound,
    gaussian_mu_of,
    laplace_epsilon_of,
)
from gossamer.privacy.streams.noise_streams import CorrelatedNoise, NoiseLaw, StreamKind
from gossamer.sides.ledger import Ledger
from gossamer.sides.plan import SidePlan, Stream

RUN_ASSUMPTIONS = (
    "numbers of features and classes, the choice of test examples and who belongs to which unit do not depend on the "
    "data either",
    CODE,
    EXAMPLES,
    "figures of servers' own models and distances from the best model, in the metrics of a simulation, are not covered",
    SIMULATED_NOISE,
)
"""Of a run's guarantees, beside those of graph federated learning."""


@dataclass(frozen=True)
class UnitTerms:
    """Terms planned for one unit.

    Attributes
    ----------
    agents : tuple of str
        Agents whose data it holds.
    stream : StreamKind
        Stream of its server.
    links : int
        Records of a round.
    noise : Noise or None
        Noise that its messages carry.
    bound : UpdateBound or None
        Bound on how far one change moves its updates; None where nothing is proved.
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
    noise = planned_noise(problem, matrix, clip) if spec.private else None
    units = unit_terms(problem, noise, clip)
    lengths, advice = planned_lengths(problem, noise, clip)
    guarantees = _guarantees(problem, noise, clip)
    radius = math.inf if lengths is None else lengths.radius
    longest = _longest(problem, clip)
    streams: dict[str, SidePlan] = {
        server: _stream(server, unit, longest, guarantees["other_units"]) for server, unit in units.items()
    }
    # Rounds of all servers, those of averaging at the end included.
    updates = (settings.rounds + settings.consensus) * len(units)
    line = f"{counted(updates, 'update')} of {counted(len(units), 'unit')} in {counted(settings.rounds, 'round')}, "
    line += _law(noise)
    figures: dict[str, Any] = {"mechanism": _described(noise, units, settings.rounds)}
    if noise is not None:
        figures["expected_noise"] = expected = expected_noise(problem, noise, matrix)
        line += f"; expected network disagreement {expected['disagreement']:.4g}"
    if math.isfinite(radius):
        figures["masked_model_radius"] = radius
    return Plan(
        stop=spec.stop,
        quotas=None,  # rounds are the algorithm's own
        mechanisms=mechanisms,
        epsilons=_epsilons(problem, units),
        guarantees=guarantees,
        sides=streams | agent_plans(problem, clip, radius, streams),
        releases={agent: unit.stream.records for unit in units.values() for agent in unit.agents},
        updates=updates,
        noise=[unit.stream.describe() for unit in units.values()],
        figures=figures,
        words=Words(plan=line, advice=advice),
        spent=partial(_spent, problem, units, guarantees["other_units"]),
        lengths=lengths,
    )


def _law(noise: Noise | None) -> str:
    """The noise in a few words."""
    if noise is None:
        return "no noise"
    how = "" if isinstance(noise, RandomNoise) else f"{noise.factorisation.temporal}, "
    return f"{_scheme(noise)} {noise.law} noise ({how}standard deviation {noise.standard_deviation:.4g})"


def _scheme(noise: Noise | None) -> str:
    if noise is None:
        return "none"
    return "random" if isinstance(noise, RandomNoise) else "homomorphic"


def _described(noise: Noise | None, units: Mapping[str, UnitTerms], rounds: int) -> dict[str, Any]:
    """The stream that all units have; without numbers of records where they differ."""
    first, *others = [unit.stream.describe() for unit in units.values()]
    common = {key: value for key, value in first.items() if all(other[key] == value for other in others)}
    return {**common, "noise": _scheme(noise), "rounds": rounds}


def _epsilons(problem: Problem[Settings], units: Mapping[str, UnitTerms]) -> dict[str, float]:
    """Proved for each agent, against the other units."""
    known: dict[tuple[Noise | None, UpdateBound | None], float] = {}
    found = {}
    for unit in units.values():
        key = unit.noise, unit.bound
        if key not in known:
            known[key] = unit.epsilon(problem.settings.rounds, problem.size, problem.spec.delta)
        found.update(dict.fromkeys(unit.agents, known[key]))
    return found


def _stream(server: str, unit: UnitTerms, longest: float, guarantee: Guarantee) -> Stream:
    """Plan of what leaves a unit."""
    noise, bound, size = unit.noise, unit.bound, unit.stream.size
    proved: dict[str, float] = {}
    if noise is not None and bound is not None:
        gaussian = noise.law is NoiseLaw.GAUSSIAN
        proved = (
            {"mu": gaussian_mu_of(noise, bound)} if gaussian else {"epsilon": laplace_epsilon_of(noise, bound, size)}
        )
    return Stream(
        unit.stream.noise,
        unit.stream.records,
        size,
        None if bound is None else bound.moved,
        1 if bound is None else bound.agents_sampled,
        longest,
        unit.agents,
        scope=frozenset((server, *unit.agents)),
        unit=guarantee.unit,
        observer=guarantee.observer,
        **proved,
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
    begun: dict[tuple[Noise | None, UpdateBound | None], tuple[UnitTerms, int]] = {}
    for ledger in ledgers:
        if ledger.owner not in units:
            continue  # an agent's own noise protects it from its own server
        unit = units[ledger.owner]
        rounds = -(-ledger.releases // unit.links)
        key = unit.noise, unit.bound
        begun[key] = unit, max(rounds, begun.get(key, (unit, 0))[1])
    size, delta = problem.size, problem.spec.delta
    return max((unit.epsilon(rounds, size, delta) for unit, rounds in begun.values()), default=0.0)


def planned_noise(problem: Problem[Settings], matrix: FloatArray, clip: float) -> Noise:
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
            return RandomNoise(settings.rounds, deviation, links_of(matrix), law)
        return CorrelatedNoise(_factorisation(settings, Temporal.INDEPENDENT), deviation, law)
    assert spec.budget is not None  # the spec checks it
    assert isinstance(spec.budget.epsilon, float)
    wanted = NoiseProblem(
        spec.budget.epsilon,
        spec.budget.delta,
        settings.rounds,
        _bound(settings, clip, min(settings.sampled)),
        problem.size,
        matrix,
        measure=Measure.MEAN,
        law=law,
    )
    if settings.random:
        return least_noise(RandomNoise(settings.rounds, 1.0, links_of(matrix), law), wanted)
    among = None if settings.temporal is None else (_factorisation(settings, Temporal(settings.temporal)),)
    return plan_noise(wanted, among).best.noise


def _factorisation(settings: Settings, default: Temporal) -> Factorisation:
    temporal = default if settings.temporal is None else Temporal(settings.temporal)
    return Factorisation(temporal, settings.rounds, settings.bands)


def _bound(settings: Settings, clip: float, sampled: int) -> UpdateBound:
    """Bound on how far one change moves an update of a unit that samples so many agents a round."""
    return UpdateBound(settings.step_size, clip, sampled, _where(settings))


def _where(settings: Settings) -> GradientAt:
    assert settings.gradient_at is not None  # it is decided with the spec
    return GradientAt(settings.gradient_at)


def unit_terms(problem: Problem[Settings], noise: Noise | None, clip: float) -> dict[str, UnitTerms]:
    """Terms planned for each unit, by its server."""
    settings, size, found = problem.settings, problem.size, {}
    bounded = noise is not None and math.isfinite(clip)
    for number, (server, agents) in enumerate(units_of(settings, problem.names).items()):
        bound = _bound(settings, clip, settings.sampled[number]) if bounded else None
        if isinstance(noise, RandomNoise):
            drawn: CorrelatedNoise | None
            own: Noise | None = replace(noise, links=(noise.links[number],))
            links = noise.links[number][1] + settings.noises_own_term
            records = settings.rounds * links
            drawn = CorrelatedNoise(Factorisation(Temporal.INDEPENDENT, records), noise.standard_deviation, noise.law)
        else:
            own, links, records, drawn = noise, 1, settings.rounds, noise
        found[server] = UnitTerms(agents, StreamKind(drawn, records, size), links, own, bound)
    return found


def _guarantees(problem: Problem[Settings], noise: Noise | None, clip: float) -> dict[str, Guarantee]:
    """Guarantees by observer, of the unit where one change moves most."""
    settings = problem.settings
    where, masked = _where(settings), settings.masking.name == "secure"
    if noise is None:
        reason = "privacy: none (nothing is noised, so messages may reveal updates)"
        return no_guarantees(where, reason, masked=masked, signed=bool(problem.run))
    if not math.isfinite(clip):
        return no_guarantees(
            where,
            "privacy.clip: none (nothing bounds an update, so noise proves nothing)",
            masked=masked,
            signed=bool(problem.run),
        )
    bound = _bound(settings, clip, min(settings.sampled))
    delta, agent_noise = problem.spec.delta, problem.spec.privacy.agent_noise
    found = graph_guarantees(noise, bound, problem.size, delta, masked=masked, signed=bool(problem.run))
    if agent_noise is not None:
        found["own_server"] = own_server(problem, clip)
        if settings.gradient_at == "hidden":  # the server's own state has that noise, too
            found["own_agents"] = found["own_server"]
    examples = min(problem.shard_sizes.values())
    return {
        observer: remarked(_of_a_run(guarantee, _of_persons(problem, guarantee)), examples)
        for observer, guarantee in found.items()
    }


def _of_a_run(guarantee: Guarantee, more: tuple[str, ...]) -> Guarantee:
    if not math.isfinite(guarantee.epsilon):
        return guarantee
    return replace(guarantee, assumptions=(*guarantee.assumptions, *more, *RUN_ASSUMPTIONS))


def _of_persons(problem: Problem[Settings], guarantee: Guarantee) -> tuple[str, ...]:
    """Lines on what a guarantee for agents or units says of persons, where the budget asks."""
    if not (asked(problem.spec) and math.isfinite(guarantee.epsilon)):
        return ()
    # Where an agent's own noise counts, another agent of its unit is another place.
    holdings, hidden = problem.holdings, guarantee.unit == UNITS[GradientAt.HIDDEN]
    unit = "unit" if hidden else "agent"
    place = list(server_of(problem.settings, problem.names).values() if hidden else problem.names)
    for held in holdings.held if holdings is not None else ():
        if len({place[node] for node, _ in held}) > 1:
            raise SpecError(
                f"dataset.person: persons have examples at several {unit}s, and what is proved is for one {unit}; "
                "keep them together (partition: by_person), or leave budget.rows_per_person out"
            )
    return (f"what protects the {unit} protects all examples that a person has there, however many",)


def expected_noise(problem: Problem[Settings], noise: Noise, matrix: FloatArray) -> dict[str, float]:
    """Expected effect of the noise alone on the models that gradients are taken at."""
    size = problem.size
    caused: ModelNoise
    if isinstance(noise, RandomNoise):
        caused = random_model_noise(noise, matrix, size, own_term=problem.settings.noises_own_term)
    else:
        caused = model_noise(noise, matrix, size, _where(problem.settings))
    return {
        "disagreement": float(caused.disagreement.mean()),
        "last_disagreement": float(caused.disagreement[-1]),
        "centroid": float(caused.centroid.mean()),
        "last_centroid": float(caused.centroid[-1]),
    }
