"""What a spec may say of noise where it is between servers of federated units, and what it may not where it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gossamer.privacy.clipping import NoClip
from gossamer.privacy.mechanisms import NeighboringRelation

if TYPE_CHECKING:
    from gossamer.experiment.spec import Experiment

Rule = Callable[["Experiment"], str | None]
"""What is wrong with a spec; None if nothing is."""


def first_problem(experiment: Experiment) -> str | None:
    """The first rule that ``experiment`` breaks, in a line."""
    rules = _OF_UNITS if experiment.in_units else _OF_OTHERS
    return next((problem for rule in rules if (problem := rule(experiment)) is not None), None)


def _amounts(spec: Experiment) -> str | None:
    given = "noise_multiplier" if spec.privacy.noise_multiplier is not None else "epsilon"
    if spec.privacy.noise_multiplier is None and spec.privacy.epsilon is None:
        return None
    return (
        f"privacy.{given} is of noise on one gradient, and {spec.algorithm.name} has noise between servers: give "
        "privacy.standard_deviation or a budget"
    )


def _one_amount(spec: Experiment) -> str | None:
    if not spec.private:
        return None
    if spec.budget is None and spec.privacy.standard_deviation is None:
        return "give a budget, or privacy.standard_deviation, or say privacy: none"
    if spec.budget is not None and spec.privacy.standard_deviation is not None:
        return "a budget and privacy.standard_deviation both fix the noise; give one of them"
    return None


def _one_budget(spec: Experiment) -> str | None:
    if spec.budget is None or not isinstance(spec.budget.epsilon, tuple):
        return None
    return f"budget.epsilon is one number in {spec.algorithm.name}, whose servers have the same noise; found a list"


def _bounded(spec: Experiment) -> str | None:
    if spec.budget is None or not isinstance(spec.privacy.clip, NoClip):
        return None
    return "privacy.clip: none meets no budget; give a bound, or privacy.standard_deviation and no budget"


def _noise_and_privacy(spec: Experiment) -> str | None:
    noise = spec.terms.between
    if spec.private and noise == "none":
        return "algorithm.noise: none adds no noise: say privacy: none, or take homomorphic or random noise"
    if not spec.private and noise != "none":
        return f"algorithm.noise: {noise} needs a law: name a privacy.mechanism, or say noise: none"
    return None


def _relation(spec: Experiment) -> str | None:
    if spec.privacy.relation is NeighboringRelation.REPLACE_ONE:
        return None
    return (
        f"privacy.neighboring_relation: {spec.algorithm.name} protects agents and units that are replaced, found "
        f"{spec.privacy.relation.value}; leave it out"
    )


def _sampling(spec: Experiment) -> str | None:
    if spec.privacy.sampling == "poisson":  # the default, which nobody need have said
        return None
    return f"privacy.sampling: {spec.algorithm.name} draws mini-batches with replacement; leave it out"


def _stop(spec: Experiment) -> str | None:
    given = next((name for name in ("epochs", "updates") if getattr(spec.stop, name) is not None), None)
    if given is None:
        return None
    return f"stop.{given}: {spec.algorithm.name} ends after algorithm.rounds, the same for all servers; leave it out"


def _agent_noise(spec: Experiment) -> str | None:
    if spec.privacy.agent_noise is None:
        return None
    if not spec.private:
        return "privacy.agent_noise comes beside noise between servers; name a privacy.mechanism"
    masking = spec.terms.masking
    if masking != "secure":
        return f"privacy.agent_noise is added inside masked sums: say algorithm.masking: secure, found {masking}"
    return None


def _no_agent_noise(spec: Experiment) -> str | None:
    if spec.privacy.agent_noise is None:
        return None
    return f"privacy.agent_noise is of agents in federated units; {spec.algorithm.name} has none"


def _no_deviation(spec: Experiment) -> str | None:
    if spec.privacy.standard_deviation is None:
        return None
    level = "epsilon" if spec.privacy.mechanism == "l2_laplace" else "noise_multiplier"
    return f"privacy.standard_deviation is of noise between servers; {spec.algorithm.name} takes privacy.{level}"


def _no_laplace(spec: Experiment) -> str | None:
    if spec.privacy.mechanism != "laplace":
        return None
    return f"privacy.mechanism: laplace is of noise between servers; {spec.algorithm.name} takes l2_laplace"


_OF_UNITS: tuple[Rule, ...] = (
    _amounts,
    _noise_and_privacy,
    _one_amount,
    _one_budget,
    _bounded,
    _relation,
    _sampling,
    _agent_noise,
    _stop,
)
_OF_OTHERS: tuple[Rule, ...] = (_no_laplace, _no_deviation, _no_agent_noise)
