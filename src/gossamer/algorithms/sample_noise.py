"""Noise that each node adds: what the spec says, or the least that its budget needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from gossamer.algorithms.persons import kinds_of_persons, spread
from gossamer.algorithms.problem import Problem
from gossamer.errors import BudgetUnreachable, SpecError
from gossamer.privacy.accounting.planner import (
    Family,
    calibrate,
    calibrate_jointly,
    gaussian_family,
    l2_laplace_family,
)
from gossamer.privacy.mechanisms import BallGaussian, Gaussian, L2Laplace, Mechanism, NeighboringRelation, NoNoise
from gossamer.privacy.paper_noise import PaperNoise
from gossamer.privacy.sampling import Sampling

Schedule = Mapping[Sampling, int]
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


def _family(problem: Problem[Any]) -> Family:
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


def describe_law(mechanism: Mechanism) -> str:
    """A mechanism in a few words."""
    if isinstance(mechanism, Gaussian):
        return f"Gaussian noise (noise multiplier {mechanism.noise_multiplier:.4g})"
    if isinstance(mechanism, L2Laplace):
        return f"L2-Laplace noise (epsilon {mechanism.epsilon:.4g} a full-batch release)"
    if isinstance(mechanism, PaperNoise):
        return f"noise whose norm is {mechanism.norm} (epsilon {mechanism.epsilon:.4g} a release, which is not proved)"
    return "no noise" if isinstance(mechanism, NoNoise) else type(mechanism).__name__


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
