"""Noise that each node adds: what the spec says, or the least that its budget needs; and persons who have many rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

from gossamer.algorithms.problem import EXAMPLE, Held, Holdings, Problem, Spec
from gossamer.errors import BudgetUnreachable, SpecError
from gossamer.privacy.accounting.accountants import Accounted, joint_epsilon
from gossamer.privacy.accounting.planner import (
    NoiseFamily,
    calibrate,
    calibrate_jointly,
    gaussian_family,
    l2_laplace_family,
)
from gossamer.privacy.guarantees import KnownPersons
from gossamer.privacy.mechanisms import BallGaussian, Gaussian, L2Laplace, Mechanism, NeighboringRelation, NoNoise
from gossamer.privacy.paper_noise import PaperNoise
from gossamer.privacy.releases import Counts
from gossamer.privacy.sampling import BatchSampling

MOST_KINDS = 32
"""Most kinds of persons that are accounted for: each takes about a tenth of a second."""

Parts = tuple[tuple[str, int], ...]
"""Of one person: the nodes that hold examples, and how many."""


def asked(spec: Spec) -> bool:
    """Whether the guarantee is to cover all examples of a person."""
    return spec.budget is not None and spec.budget.rows_per_person is not None


def knowledge(holdings: Holdings | None) -> KnownPersons:
    """Return what is known of where a person's examples are."""
    if holdings is None:
        return KnownPersons.NOTHING
    return KnownPersons.TOGETHER if holdings.together else KnownPersons.SPREAD


def spread(spec: Spec, holdings: Holdings | None) -> bool:
    """Whether a guarantee for persons has to count several nodes together: one for all that a node has does not."""
    return asked(spec) and knowledge(holdings) is KnownPersons.SPREAD and spec.terms.unit == EXAMPLE


def check_room(problem: Problem[Any]) -> None:
    """Refuse more examples of a person than there can be: they would only cost noise.

    Raises
    ------
    SpecError
        If ``budget.rows_per_person`` is above the number of training examples where a person's may be.
    """
    sizes, rows = problem.shard_sizes.values(), problem.spec.rows_per_person
    room, where = (
        (sum(sizes), "all nodes have")
        if spread(problem.spec, problem.holdings)
        else (max(sizes), "the largest shard has")
    )
    if asked(problem.spec) and rows > room:
        raise SpecError(
            f"budget.rows_per_person: {where} {room} training example{'s'[: room != 1]}, and a person is to have up to "
            f"{rows}; take the most that one person has"
        )


def rows_at(problem: Problem[Any]) -> dict[str, int]:
    """The most examples of one person that each node's own epsilon covers."""
    rows = dict.fromkeys(problem.names, problem.spec.rows_per_person)
    if not spread(problem.spec, problem.holdings):
        return rows
    assert problem.holdings is not None
    most: dict[int, int] = {}
    for held in problem.holdings.held:
        for node, number in held:
            most[node] = max(number, most.get(node, 0))
    return {name: most[node] for node, name in enumerate(problem.names)}


def kinds_of_persons(problem: Problem[Any], alike: Mapping[str, Hashable], most: int = MOST_KINDS) -> list[Parts]:
    """Kinds of persons, by where examples are, that no other kind exceeds; nodes that are ``alike`` count as one.

    Raises
    ------
    SpecError
        If there are more than ``most``.
    """
    assert problem.holdings is not None
    names = problem.names
    first: dict[Hashable, int] = {}
    for node, name in enumerate(names):
        first.setdefault(alike[name], node)
    same = [first[alike[name]] for name in names]
    found = {tuple(sorted((same[node], -rows) for node, rows in held)) for held in problem.holdings.held}
    front: list[Held] = []
    # One with more examples is never within one with fewer.
    for held in sorted(found, key=lambda held: (sum(rows for _, rows in held), held)):
        if any(_within(held, other) for other in front):
            continue
        front.append(held)
        if len(front) > most:
            raise SpecError(
                f"dataset.person: persons' examples lie at nodes in more than {most} ways, too many for a joint "
                "guarantee; take partition: by_person, which keeps them together"
            )
    return [tuple((names[node], -rows) for node, rows in held) for held in front]


def _within(held: Held, other: Held) -> bool:
    """Whether ``other`` has at least as many examples everywhere; both sorted, with negative numbers of examples."""
    more = _by_node(other)
    return all(
        len(rows) <= len(more.get(node, ())) and all(-a <= -b for a, b in zip(rows, more[node]))
        for node, rows in _by_node(held).items()
    )


def _by_node(held: Held) -> dict[int, Sequence[int]]:
    return {node: [rows for _, rows in group] for node, group in groupby(held, itemgetter(0))}


def joint(problem: Problem[Any], counts: Mapping[str, Counts], most: int = MOST_KINDS) -> Accounted:
    """Return what is proved of all that nodes release, for the person of whom most is released.

    Raises
    ------
    SpecError
        If persons' examples lie at nodes in more than ``most`` ways.
    """
    spec = problem.spec
    found: Iterable[Accounted] = (
        joint_epsilon([(counts[name], rows) for name, rows in parts], spec.delta, spec.privacy.relation)
        for parts in persons_of(problem, counts, most)
    )
    return max(found, key=lambda accounted: accounted.epsilon)


def persons_of(problem: Problem[Any], counts: Mapping[str, Counts], most: int = MOST_KINDS) -> list[Parts]:
    """Kinds of persons, by where their examples are, for nodes that release so much; see `kinds_of_persons`."""
    return kinds_of_persons(problem, {name: frozenset(of.items()) for name, of in counts.items()}, most)


def advice_on_persons(problem: Problem[Any]) -> list[str]:
    """A warning where the data say whose they are, and the guarantee is for single examples."""
    holdings, spec = problem.holdings, problem.spec
    if holdings is None or asked(spec) or not (spec.private and spec.proved) or holdings.most <= 1:
        return []
    where = f", at up to {holdings.most_nodes} nodes" if holdings.most_nodes > 1 else ""
    return [
        f"dataset.person: persons have up to {holdings.most} training examples{where}, and the guarantee is for each "
        f"example; a budget with rows_per_person: {holdings.most} covers all examples of a person"
    ]


Schedule = Mapping[BatchSampling, int]
"""How many releases of each sampling a node makes."""

T = TypeVar("T")


def choose_mechanisms(problem: Problem[Any], schedules: Mapping[str, Schedule]) -> dict[str, Mechanism]:
    """The noise of each node.

    Raises
    ------
    SpecError
        If a list in the spec has another length than there are nodes.
    BudgetUnreachable
        If no noise meets a budget.
    """
    privacy, budget = problem.spec.privacy, problem.spec.budget
    if not problem.spec.private:
        bound = None if privacy.clip is None else privacy.clip.initial_bound
        clips = problem.spec.terms.sensitivity
        return dict.fromkeys(problem.names, NoNoise(math.inf if bound is None else clips * bound))
    if privacy.level is not None:
        key = "privacy.noise_multiplier" if privacy.mechanism == "gaussian" else "privacy.epsilon"
        law = _law(problem)
        return {name: law(level) for name, level in _each(problem, key, privacy.level).items()}
    assert budget is not None  # the spec checks it
    if spread(problem.spec, problem.holdings):
        return dict.fromkeys(problem.names, _calibrated_jointly(problem, schedules))
    budgets = _each(problem, "budget.epsilon", budget.epsilon)
    found = {level: _calibrated(problem, schedules, budgets, level) for level in set(budgets.values())}
    return {name: found[level] for name, level in budgets.items()}


def _each(problem: Problem[Any], key: str, values: T | tuple[T, ...]) -> dict[str, T]:
    """One value for each node."""
    names = problem.names
    if not isinstance(values, tuple):
        return dict.fromkeys(names, values)
    if len(values) != len(names):
        raise SpecError(f"{key}: expected one number for each of the {len(names)} nodes, found {len(values)}")
    return dict(zip(names, values, strict=True))


def _law(problem: Problem[Any]) -> Callable[[float], Mechanism]:
    """The mechanism of an amount of noise, as the spec gives it."""
    privacy, clip = problem.spec.privacy, _clip(problem)
    if privacy.mechanism == "gaussian":
        clips = problem.spec.terms.sensitivity  # a mechanism's clip is how far one example moves a release
        gaussian = _gaussian(problem)
        return lambda multiplier: gaussian(clips * clip, multiplier / clips)
    if privacy.proved:
        return lambda epsilon: L2Laplace(clip, epsilon, privacy.relation)
    scope = _first_layer(problem) if privacy.noise_scope == "first_layer" else 0
    return lambda epsilon: PaperNoise(clip, epsilon, privacy.relation, privacy.norm, scope)


def _clip(problem: Problem[Any]) -> float:
    """The first clip, of which noise is a multiple."""
    if problem.first_clip == math.inf:
        raise SpecError(
            "privacy.clip: noise is a multiple of the clip, found none; give a clip, or privacy.mechanism: none"
        )
    return problem.first_clip


def _gaussian(problem: Problem[Any]) -> type[Gaussian]:
    """The law of Gaussian noise; where one example comes or goes, sums clipped as a whole need none of their own."""
    spec = problem.spec
    several = spec.privacy.relation is NeighboringRelation.REPLACE_ONE or spec.rows_per_person > 1
    return BallGaussian if spec.terms.clipped_whole and several else Gaussian


def _first_layer(problem: Problem[Any]) -> int:
    """Number of leading coordinates that belong to the first layer."""
    parts = problem.parts
    layers = [part.name.rpartition(".")[0] for part in parts]
    return sum(part.size for part, layer in zip(parts, layers, strict=True) if layer == layers[0])


def _calibrated(
    problem: Problem[Any], schedules: Mapping[str, Schedule], budgets: Mapping[str, float], level: float
) -> Mechanism:
    """The least noise with which every node of this budget ends within it."""
    spec = problem.spec
    assert spec.budget is not None
    own = [schedule for name, schedule in schedules.items() if budgets[name] == level]
    rows = spec.rows_per_person
    budget, relation, beside = spec.budget, spec.privacy.relation, problem.beforehand
    return calibrate(level, budget.delta, relation, own, _family(problem), rows=rows, beside=beside).mechanism


def _calibrated_jointly(problem: Problem[Any], schedules: Mapping[str, Schedule]) -> Mechanism:
    """The least noise with which every person ends within the budget, at all nodes together."""
    spec = problem.spec
    assert spec.budget is not None
    persons = kinds_of_persons(problem, {name: frozenset(schedule.items()) for name, schedule in schedules.items()})
    holdings = [[(schedules[name], rows) for name, rows in parts] for parts in persons]
    level = _one_budget(problem, spec.budget.epsilon)
    delta, relation, beside = spec.budget.delta, spec.privacy.relation, problem.beforehand
    return calibrate_jointly(level, delta, relation, holdings, _family(problem), beside=beside).mechanism


def _one_budget(problem: Problem[Any], epsilon: float | tuple[float, ...]) -> float:
    """The budget of persons whose examples are at several nodes."""
    if isinstance(epsilon, tuple):
        raise SpecError(
            "budget.epsilon: persons have examples at several nodes, whose budgets are one; give one number, or take "
            "partition: by_person, which keeps persons together"
        )
    return epsilon


def _family(problem: Problem[Any]) -> NoiseFamily:
    """The noise laws that a budget chooses from."""
    spec, clip = problem.spec, _clip(problem)
    if spec.privacy.mechanism == "gaussian":
        return gaussian_family(spec.terms.sensitivity * clip, _gaussian(problem))
    return l2_laplace_family(problem.size, spec.privacy.relation, clip)


def check_budget(
    problem: Problem[Any], schedules: Mapping[str, Schedule], epsilons: Mapping[str, float], joint: float | None
) -> None:
    """Refuse noise that the spec gives and that does not meet its budget.

    ``joint`` is what is proved of several nodes together, where a person's examples are at more than one.

    Raises
    ------
    BudgetUnreachable
        For the node that exceeds it most.
    """
    budget, privacy = problem.spec.budget, problem.spec.privacy
    if budget is None:
        return
    level = "noise_multiplier" if privacy.mechanism == "gaussian" else "epsilon"
    if joint is not None and joint > (whole := _one_budget(problem, budget.epsilon)):
        raise BudgetUnreachable(
            f"privacy.{level} {privacy.level} needs epsilon {joint:.4g} at delta {budget.delta:g} for persons with "
            f"examples at several nodes, more than budget.epsilon {whole:g}; leave {level} out to calibrate it"
        )
    budgets = _each(problem, "budget.epsilon", budget.epsilon)
    worst = max(epsilons, key=lambda name: epsilons[name] / budgets[name])
    if epsilons[worst] > budgets[worst]:
        raise BudgetUnreachable(
            f"privacy.{level} {privacy.level} needs epsilon {epsilons[worst]:.4g} at delta {budget.delta:g} for the "
            f"{sum(schedules[worst].values())} releases of {worst}, more than budget.epsilon {budgets[worst]:g}; leave "
            f"{level} out to calibrate it"
        )


def advice_on_noise(problem: Problem[Any], mechanisms: Mapping[str, Mechanism]) -> list[str]:
    """A warning where noise of a pure epsilon is larger than any signal.

    The mean of clipped gradients is at most as long as the clip G. The noise on it has the expected norm
    d S/(B epsilon), with S the sensitivity of the sum: a ratio of d (S/G) / (B epsilon). (Where a paper's norm is
    exponential, 1 stands in the place of d, and where it leaves coordinates out, the number of the others.)
    """
    laws = {name: law for name, law in mechanisms.items() if isinstance(law, (L2Laplace, PaperNoise))}
    if not laws:
        return []
    size = problem.size
    name = min(laws, key=lambda name: laws[name].epsilon)
    batch = problem.workload.of(name, 0)
    law = laws[name]
    needed = law.epsilon * law.mean_norm(size) / (law.clip * batch)
    if needed <= law.epsilon:
        return []
    proved = isinstance(law, L2Laplace)
    largest = math.floor(size * law.epsilon / needed) if proved else 0
    smaller = f", and so would a model of {largest} parameters at epsilon {law.epsilon:.4g}" if largest else ""
    whose = "" if len(set(laws.values())) == 1 else f" of {name}"
    return [
        f"l2_laplace: the expected norm of the noise{whose} is {needed / law.epsilon:.4g} times the clip, larger than "
        f"any gradient; for the {size} parameters of this model and batches of {batch}, an epsilon of {needed:.4g} a "
        f"release would make them equal{smaller}"
    ]
