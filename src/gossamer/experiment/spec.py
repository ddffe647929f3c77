"""The spec: everything that decides a run's result, as data.

A spec is a YAML file or the same object in Python. A section may be a bare name: ``dataset: digits`` is
``dataset: {name: digits}``, and ``privacy: none`` is ``privacy: {mechanism: none}``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import yaml
from pydantic import BaseModel, BeforeValidator, Field, model_validator

from gossamer.algorithms.problem import Budget as Budget
from gossamer.algorithms.problem import PrivacySettings as PrivacySettings
from gossamer.algorithms.problem import StopSettings as StopSettings
from gossamer.algorithms.problem import Terms
from gossamer.algorithms.table import ALGORITHMS, DEFAULT, AlgorithmSettings
from gossamer.bounded import real_path
from gossamer.data.partition import Iid, PartitionSettings
from gossamer.data.settings import DatasetSettings
from gossamer.experiment.sections import (
    ComputeSettings,
    DeploymentSettings,
    EvaluationSettings,
    ObjectiveSettings,
    PersonalisationSettings,
    on_or_off,
)
from gossamer.notebooks import card, verbatim
from gossamer.privacy.clipping import FixedClip, QuantileClip, StageClip
from gossamer.privacy.weakness import refused_delta
from gossamer.runtimes.links import FaultSettings, LinkSettings
from gossamer.runtimes.speeds import SpeedSettings
from gossamer.section import Section, bare

Plain: TypeAlias = str | Path | Mapping[str, Any]
"""What may stand for a section: its name, or its keys as plain data."""


class Experiment(Section):
    """A whole experiment; every section has a default.

    Examples
    --------
    >>> import gossamer as gs
    >>> experiment = gs.Experiment(
    ...     dataset="digits",
    ...     algorithm=gs.Gossip(topology="ring", nodes=8),
    ...     budget=gs.Budget(epsilon=5, delta=1e-4),
    ... )
    """

    dataset: Annotated[DatasetSettings, bare("name")] = DatasetSettings(name="digits")
    partition: Annotated[PartitionSettings, bare("name")] = Iid()
    objective: Annotated[ObjectiveSettings, bare("name")] = ObjectiveSettings()
    algorithm: Annotated[AlgorithmSettings, bare("name")] = DEFAULT
    privacy: Annotated[PrivacySettings, bare("mechanism")] = PrivacySettings()
    budget: Budget | None = None
    speeds: Annotated[SpeedSettings, bare("name")] = SpeedSettings()
    links: LinkSettings = LinkSettings()
    faults: FaultSettings = FaultSettings()
    stop: StopSettings = StopSettings()
    evaluation: Annotated[EvaluationSettings, bare("name"), BeforeValidator(on_or_off)] = EvaluationSettings()
    compute: ComputeSettings = ComputeSettings()
    deployment: DeploymentSettings = DeploymentSettings()
    personalisation: PersonalisationSettings | None = None
    seed: int = Field(default=0, ge=0)

    if TYPE_CHECKING:  # the types of fields are those of what is read, and more may be given

        def __init__(
            self,
            *,
            dataset: DatasetSettings | Plain = ...,
            partition: PartitionSettings | Plain = ...,
            objective: ObjectiveSettings | Plain = ...,
            algorithm: AlgorithmSettings | Section | Plain = ...,
            privacy: PrivacySettings | Plain = ...,
            budget: Budget | Mapping[str, Any] | None = ...,
            speeds: SpeedSettings | Plain = ...,
            links: LinkSettings | Mapping[str, Any] = ...,
            faults: FaultSettings | Mapping[str, Any] = ...,
            stop: StopSettings | Mapping[str, Any] = ...,
            evaluation: EvaluationSettings | Plain | bool = ...,
            compute: ComputeSettings | Mapping[str, Any] = ...,
            deployment: DeploymentSettings | Mapping[str, Any] = ...,
            personalisation: PersonalisationSettings | Mapping[str, Any] | None = ...,
            seed: int = ...,
        ) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _an_empty_section_is_the_default(cls, values: Any) -> Any:
        if isinstance(values, dict):
            return {key: value for key, value in values.items() if value is not None}
        return values

    @model_validator(mode="after")
    def _algorithm_is_decided(self) -> Experiment:
        """Fill in what depends on whether there is noise, so that a written spec says what was done."""
        decided = ALGORITHMS[self.algorithm.name].decided(self.algorithm, self.private)
        object.__setattr__(self, "algorithm", decided)
        return self

    @model_validator(mode="after")
    def _clip_is_decided(self) -> Experiment:
        """Fill in the default, which depends on the algorithm, so that a written spec says what was done."""
        default = ALGORITHMS[self.algorithm.name].clips.default
        if isinstance(default, QuantileClip) and self.privacy.mechanism != "gaussian":
            default = FixedClip()
        if self.privacy.clip is None and (self.private or isinstance(default, StageClip)):
            object.__setattr__(self, "privacy", self.privacy.model_copy(update={"clip": default}))
        return self

    @model_validator(mode="after")
    def _algorithm_agrees(self) -> Experiment:
        """Fill in the relation that goes with the algorithm, so that a written spec says it; and ask for the rest."""
        if self.terms.relation is not None and self.privacy.neighboring_relation is None:
            relation = {"neighboring_relation": self.terms.relation}
            object.__setattr__(self, "privacy", self.privacy.model_copy(update=relation))
        for problem in ALGORITHMS[self.algorithm.name].check(self.algorithm, self):
            raise ValueError(problem)
        return self

    @model_validator(mode="after")
    def _privacy_is_decided(self) -> Experiment:
        if self.private and self.terms.noiseless:
            raise ValueError(f"{self.algorithm.name} adds no noise: say privacy: none, or take audp")
        if self.private and self.budget is None and self.privacy.level is None:
            level = "noise_multiplier" if self.privacy.mechanism == "gaussian" else "epsilon"
            raise ValueError(f"give a budget, or privacy.{level}, or say privacy: none")
        if not self.private and self.budget is not None:
            raise ValueError("privacy: none meets no budget; leave the budget out, or name a mechanism")
        if self.privacy.shared_samples and self.secretive:
            raise ValueError(
                "privacy.shared_samples: batches that follow from the seed are known to all, and a guarantee needs "
                "secret ones; leave it out, or take noise_secret: reproducible, which guarantees nothing"
            )
        if not self.privacy.proved and self.budget is not None:
            raise ValueError("norm: exponential and noise_scope: first_layer meet no budget; leave the budget out")
        if not self.proved and self.budget is not None:
            raise ValueError(
                "round_update: sequential meets no budget, because nothing is proved for it; take batch or "
                "clipped_sum, or give privacy.noise_multiplier and no budget"
            )
        if self.private and self.proved:
            key = "privacy" if self.budget is None else "budget"
            how = "privacy.accept_weak: true (--accept-weak)"
            if (problem := refused_delta(self.delta, self.privacy.accept_weak, how)) is not None:
                raise ValueError(f"{key}: {problem}")
        if isinstance(self.privacy.clip, QuantileClip) and self.privacy.mechanism == "l2_laplace":
            raise ValueError("the quantile policy counts with gaussian noise; take mechanism gaussian, or a fixed clip")
        if self.stop.accuracy is not None and not self.bounded:
            raise ValueError(
                "stop.accuracy depends on data, so privacy needs another bound to be calibrated for: "
                "give stop.updates, stop.epochs, stop.virtual_seconds or algorithm.updates_per_node as well"
            )
        return self

    @model_validator(mode="after")
    def _accuracy_is_looked_at(self) -> Experiment:
        if self.stop.accuracy is not None and self.evaluation.name == "off":
            raise ValueError("stop.accuracy needs evaluation, which is off")
        return self

    def _repr_html_(self) -> str:
        """The experiment as notebooks show it: what is not as by default in a line a section, and the spec to open."""
        said = self.model_dump(mode="json", exclude_defaults=True, exclude={"seed"})
        for section in ("dataset", "algorithm"):
            said[section] = {"name": getattr(self, section).name, **said.get(section, {})}
        rows = {name: _in_a_line(said[name]) for name in type(self).model_fields if name in said}
        spec = yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
        return card(
            f"Experiment, seed {self.seed}",
            {name: line for name, line in rows.items() if line},
            [verbatim("The whole spec", spec)],
        )

    @property
    def terms(self) -> Terms:
        """Decisions of the algorithm's settings about releases."""
        return ALGORITHMS[self.algorithm.name].terms(self.algorithm)

    @property
    def private(self) -> bool:
        """Whether noise is added."""
        return self.privacy.mechanism != "none"

    @property
    def reproducible(self) -> bool:
        """Whether what a run hides things with follows from its seed, so that it hides nothing."""
        return self.privacy.noise_secret == "reproducible"

    @property
    def secretive(self) -> bool:
        """Whether a run draws what nobody may guess, noise or masks, so that it needs a noise secret."""
        return not self.reproducible and (self.private or self.terms.hiding)

    @property
    def proved(self) -> bool:
        """Whether a guarantee is proved for the noise, if there is any, and for what it is added to."""
        return self.privacy.proved and self.terms.proved

    @property
    def bounded(self) -> bool:
        """Whether the run's length is limited by something public."""
        stop = self.stop
        own = (self.algorithm.updates_per_node, self.terms.limit)
        return any((stop.updates, stop.epochs, stop.virtual_seconds, *own))

    @property
    def ends_by_clock(self) -> bool:
        """Whether the number of updates of a run depends on how long they take."""
        looks_by_clock = self.stop.accuracy is not None and self.evaluation.every_seconds is not None
        return self.stop.virtual_seconds is not None or looks_by_clock

    @property
    def disturbed(self) -> bool:
        """Whether nodes are away at times, or cut off from each other."""
        return self.faults.away or bool(self.links.partitions)

    @property
    def rows_per_person(self) -> int:
        """The number of examples of one person that a guarantee covers together."""
        return 1 if self.budget is None else self.budget.rows_per_person or 1

    @property
    def delta(self) -> float:
        """The delta at which guarantees are stated."""
        return self.budget.delta if self.budget is not None else self.privacy.delta


def _in_a_line(section: Mapping[str, Any]) -> str:
    """Keys and values of a section as YAML has them on one line; those that only say a default kind are left out."""
    said = {key: value for key, value in section.items() if value != {}}
    line = yaml.safe_dump(said, default_flow_style=True, sort_keys=False, allow_unicode=True, width=math.inf)
    return line.strip()[1:-1]


def resolved(experiment: Experiment, folder: Path) -> Experiment:
    """The experiment with relative paths taken from ``folder``, where its spec lies."""
    return _with_paths(experiment, lambda path: real_path(folder / path))


def placeless(experiment: Experiment) -> Experiment:
    """The experiment with the names of its files alone: the same wherever they lie."""
    return _with_paths(experiment, lambda path: Path(path.name))


def _with_paths(experiment: Experiment, change: Callable[[Path], Path]) -> Experiment:
    def changed(value: Any) -> Any:
        if isinstance(value, Path):
            return change(value)
        if isinstance(value, BaseModel):
            found = {name: changed(getattr(value, name)) for name in type(value).model_fields}
            other = {name: item for name, item in found.items() if item is not getattr(value, name)}
            return value.model_copy(update=other) if other else value
        return value

    result: Experiment = changed(experiment)
    return result
