"""Rules for what a spec may say of noise where it is between servers of federated units."""

from __future__ import annotations

from collections.abc import Iterator

from gossamer.algorithms.graph_federated.settings import Settings
from gossamer.algorithms.problem import Spec
from gossamer.privacy.clipping import NoClip
from gossamer.privacy.mechanisms import NeighboringRelation


def _amounts(settings: Settings, spec: Spec) -> str | None:
    given = "noise_multiplier" if spec.privacy.noise_multiplier is not None else "epsilon"
    if spec.privacy.noise_multiplier is None and spec.privacy.epsilon is None:
        return None
    return (
        f"privacy.{given} is of noise on one gradient, and {settings.name} has noise between servers: give "
        "privacy.standard_deviation or a budget"
    )


def _one_amount(settings: Settings, spec: Spec) -> str | None:
    if not spec.private:
        return None
    if spec.budget is None and spec.privacy.standard_deviation is None:
        return "give a budget, or privacy.standard_deviation, or say privacy: none"
    if spec.budget is not None and spec.privacy.standard_deviation is not None:
        return "a budget and privacy.standard_deviation both fix the noise; give one of them"
    return None


def _one_budget(settings: Settings, spec: Spec) -> str | None:
    if spec.budget is None or not isinstance(spec.budget.epsilon, tuple):
        return None
    return f"budget.epsilon is one number in {settings.name}, whose servers have the same noise; found a list"


def _bounded(settings: Settings, spec: Spec) -> str | None:
    if spec.budget is None or not isinstance(spec.privacy.clip, NoClip):
        return None
    return "privacy.clip: none meets no budget; give a bound, or privacy.standard_deviation and no budget"


def _noise_and_privacy(settings: Settings, spec: Spec) -> str | None:
    noise = settings.noise
    if spec.private and noise == "none":
        return "algorithm.noise: none adds no noise: say privacy: none, or take homomorphic or random noise"
    if not spec.private and noise != "none":
        return f"algorithm.noise: {noise} needs a law: name a privacy.mechanism, or say noise: none"
    return None


def _relation(settings: Settings, spec: Spec) -> str | None:
    if spec.privacy.relation is NeighboringRelation.REPLACE_ONE:
        return None
    return (
        f"privacy.neighboring_relation: {settings.name} protects agents and units that are replaced, found "
        f"{spec.privacy.relation.value}; leave it out"
    )


def _sampling(settings: Settings, spec: Spec) -> str | None:
    if spec.privacy.sampling == "poisson":  # the default, which nobody need have said
        return None
    return f"privacy.sampling: {settings.name} draws mini-batches with replacement; leave it out"


def _stop(settings: Settings, spec: Spec) -> str | None:
    given = next((name for name in ("epochs", "updates") if getattr(spec.stop, name) is not None), None)
    if given is None:
        return None
    return f"stop.{given}: {settings.name} ends after algorithm.rounds, the same for all servers; leave it out"


def _agent_noise(settings: Settings, spec: Spec) -> str | None:
    if spec.privacy.agent_noise is None:
        return None
    if not spec.private:
        return "privacy.agent_noise comes beside noise between servers; name a privacy.mechanism"
    masking = settings.masking.name
    if masking != "secure":
        return f"privacy.agent_noise is added inside masked sums: say algorithm.masking: secure, found {masking}"
    return None


def _independent_noise(settings: Settings, spec: Spec) -> str | None:
    masking = settings.masking
    if masking.name != "independent_noise" or masking.standard_deviation or spec.privacy.standard_deviation:
        return None
    return "algorithm.masking: independent_noise needs a standard_deviation where privacy has none; give one"


_RULES = (
    _amounts,
    _noise_and_privacy,
    _one_amount,
    _one_budget,
    _bounded,
    _relation,
    _sampling,
    _agent_noise,
    _independent_noise,
    _stop,
)


def check(settings: Settings, spec: Spec) -> Iterator[str]:
    """The rules that a spec breaks, a line each."""
    return (problem for rule in _RULES if (problem := rule(settings, spec)) is not None)
