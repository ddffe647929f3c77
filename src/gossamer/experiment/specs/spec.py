"""The spec: everything that decides a run's result, as data.

A spec is a YAML file or the same object in Python. A section may be a bare name: ``dataset: digits`` is
``dataset: {name: digits}``, and ``privacy: none`` is ``privacy: {mechanism: none}``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import yaml
from pydantic import BaseModel, BeforeValidator, Field, PositiveFloat, PositiveInt, model_validator

from gossamer.algorithms.optimizer import OneRate
from gossamer.algorithms.plan import EXAMPLE, Budget, PrivacySettings, Spec, StopSettings, Terms
from gossamer.algorithms.table import ALGORITHMS, DEFAULT, AlgorithmSettings
from gossamer.data.partition import KIND as PARTITIONS
from gossamer.data.partition import Iid, PartitionSettings
from gossamer.data.settings import DatasetSettings
from gossamer.files import real_path, refusals
from gossamer.notebooks import card, verbatim
from gossamer.objectives.class_weights import ClassWeight
from gossamer.objectives.network_settings import KIND as LOSSES
from gossamer.objectives.network_settings import AdapterSettings, LossSettings
from gossamer.objectives.objective import FOREIGN
from gossamer.privacy.clipping import FixedClip, QuantileClip, StageClip
from gossamer.privacy.guarantees import refused_delta
from gossamer.privacy.tasks import TrainingQuery
from gossamer.runtimes.speeds import SpeedSettings
from gossamer.runtimes.world import FaultSettings, LinkSettings
from gossamer.section import Kind, Registered, Section, bare, says, used
from gossamer.topology.topologies import KIND as TOPOLOGIES
from gossamer.trained.about import AboutSettings

_LONGEST = 86400
NOTHING_FROZEN = "nothing"
"""In the place of a hash of what a network holds and nobody trains, where that is nothing."""


def on_or_off(value: Any) -> Any:
    """YAML 1.1 reads on and off as truth values."""
    return {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value


class PretrainedSettings(Section):
    """A model that all nodes start from.

    Attributes
    ----------
    path : path, optional
        A safetensors file with the model's arrays, by name, such as a run's `model.safetensors`. It must not come from
        the private data of the run. In a federation's spec it is left out: each party says where its own copy lies.
    sha256 : str, optional
        SHA-256 of the file, 64 hexadecimal digits; another file is refused. A run fills it in, so that its spec says
        which file it was.
    """

    path: Path | None = None
    sha256: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")

    def _problems(self) -> Iterator[str]:
        if self.path is None and self.sha256 is None:
            yield "which file is it? give a path"


class ObjectiveSettings(Section):
    """Settings of what is minimised.

    Attributes
    ----------
    name : str, optional
        ``logistic``, ``softmax``, ``squared``, ``squared_error`` (the same without its 1/2), ``poisson`` (counts),
        ``hinge``, or a network: ``mlp``, ``lenet5``, ``cnn_mapa``, ... By default ``softmax`` for classes and
        ``squared`` for real targets. ``foreign`` is for federations whose parties have code of their own.
    module : str, optional
        One's own ``torch.nn.Module`` as ``package.module:Class``, instead of a name.
    l2 : float
        Strength of the L2 term; its gradient depends on no data and is added after the noise.
    loss : str or mapping, optional
        Loss of a network: ``cross_entropy``, ``mse``, ``binary_cross_entropy``, or one that another distribution
        registers, by its name or with its settings. By default what the targets ask for.
    dtype : {"float32", "float64"}
        Type of linear models; networks are float32.
    intercept : bool
        Whether a linear model has a bias; a network always has its own.
    pretrained : path or mapping, optional
        A safetensors file with the model that all nodes start from; by default one that is drawn. It must not come from
        the private data.
    adapters : mapping, optional
        Low-rank adapters of a network, which are trained in the place of its own parameters.
    frozen : str, optional
        SHA-256 of what a network holds beside the parameters that are trained, or ``nothing``. A federation's spec gets
        it where its organiser has the code, and no party whose module holds other numbers joins. Those that are trained
        need no hash, since they are what parties send each other.
    class_weight : mapping or "balanced", optional
        Factor of the loss of each class, by its label, which gradients have before they are clipped; 1 for the others.
        ``balanced``: in inverse proportion to what ``dataset.prevalence`` says of two classes, the largest being 1.
        Probabilities stay those of the population. It has to be known without the private rows.
    """

    name: str | None = None
    module: str | None = None
    l2: float = Field(default=0.0, ge=0)
    loss: LossSettings | None = None
    dtype: Literal["float32", "float64"] = "float32"
    intercept: bool = True
    pretrained: Annotated[PretrainedSettings | None, bare("path")] = None
    adapters: AdapterSettings | None = None
    frozen: str | None = Field(default=None, pattern=f"^([0-9a-f]{{64}}|{NOTHING_FROZEN})$")
    class_weight: ClassWeight | None = None

    def _problems(self) -> Iterator[str]:
        if self.name is not None and self.module is not None:
            yield f"give a name or a module, found both {self.name!r} and {self.module!r}"


class EvaluationSettings(Section):
    """Moments at which an observer that nodes cannot see looks at their models; the end is always one.

    Attributes
    ----------
    name : {"on", "off"}
        ``off``: at the end only.
    every_updates, every_seconds : optional
        Updates of all nodes, or virtual seconds, between evaluations. Without either, there are twenty a run.
    nodes : int, optional
        Number of nodes whose own models are tested, evenly spaced; None is all.
    public_path : path, optional
        A file of public examples, read as ``dataset`` says: the run's model is tested on them, too, and
        ``stop.accuracy`` goes by them in the place of the test examples.
    release : {"private"}, optional
        ``private``: after the run each party releases once, with noise, how its held-out examples are scored, and
        figures with intervals are made of that, for all parties and for each.
    epsilon : float, optional
        Epsilon of that release for each held-out example, at the delta of the run.
    by : {"party", "federation"}
        ``federation``: of all parties one histogram, the sum of theirs behind masks, so that nobody sees one party's.
    honest : float, optional
        Share of the parties, with ``federation``, that is trusted to add its noise and to tell nobody: each adds less
        then. Left out, nobody is, and each adds as much as if it released alone.
    group : str, optional
        Column of categories, or a boolean one, by whose groups figures are given, too; the release counts them
        apart, at no further epsilon. It must be declared in ``dataset.columns``.
    """

    name: Literal["on", "off"] = "on"
    every_updates: PositiveInt | None = None
    every_seconds: PositiveFloat | None = None
    nodes: PositiveInt | None = None
    public_path: Path | None = None
    release: Literal["private"] | None = None
    epsilon: float | None = Field(default=None, gt=0, le=100)
    by: Literal["party", "federation"] = "party"
    honest: float | None = Field(default=None, gt=0, le=1)
    group: str | None = None

    def _problems(self) -> Iterator[str]:
        if (self.release is None) != (self.epsilon is None):
            missing = "epsilon" if self.epsilon is None else "release"
            yield f"{missing} is missing: a release of held-out examples is private, and has an epsilon"
        if self.by == "federation" and self.release is None:
            yield "release is missing: by says whose held-out examples are released together"
        if self.honest is not None and self.by != "federation":
            yield "by: federation is missing: honest says how many parties add noise to what they sum"


class ComputeSettings(Section):
    """Ways to compute results, which change only speed, and results in the last digits.

    Attributes
    ----------
    engine : {"simulator", "compiled"}, optional
        Loop that makes a simulation. ``simulator``: every node in Python. ``compiled``: all nodes of `gossip` with
        linear models in one compiled loop, several times as fast. By default ``compiled`` from 5,000 nodes on,
        where it takes the spec; what it does not take the simulator makes, and a line says why.
    width : int
        Most computations gathered into one call; 1 computes each on its own.
    strategy : {"auto", "compiled", "layers", "vmap", "threads", "loop"}
        Way in which networks are computed; ``auto`` reads a fixed table. ``compiled``: a kernel for chains of layers.
        ``layers``: by rules for each layer. ``vmap``: one call of ``torch.func`` for all. ``threads``: a call for each
        node, on worker threads. ``loop``: a backward pass for each example.
    memory_mib : int
        Bound on the working memory of networks, in MiB.
    rounding : {"reproducible", "exact"}, optional
        Scope within which gradients have the same bits. ``reproducible``: the same run again; the default of
        simulations. ``exact``: an example, whatever others are computed beside it; deployed parties always compute so.
        Linear models and compiled networks do both at no cost; other networks then take examples one at a time.
    device : {"auto", "cpu", "cuda"}, optional
        Device on which simulations compute networks' sums of gradients, normal noise on them and evaluations, by
        PyTorch. ``cuda``: on a graphics card. ``cpu``: the same on the processor, which is slower than without.
        ``auto``: on a graphics card where there is one. Linear models, and everything by default, are computed on the
        processor in the usual way.
    precision : {"tf32", "bfloat16"}, optional
        Precision of products on a device. ``bfloat16``: of forward and backward passes of networks. ``tf32``: of all
        that are in float32, on graphics cards. By default all are in float32; norms, clipping, sums and noise always
        are.
    """

    engine: Literal["simulator", "compiled"] | None = None
    width: PositiveInt = 1024
    strategy: Literal["auto", "compiled", "layers", "vmap", "threads", "loop"] = "auto"
    memory_mib: PositiveInt = 512
    rounding: Literal["reproducible", "exact"] | None = None
    device: Literal["auto", "cpu", "cuda"] | None = None
    precision: Literal["tf32", "bfloat16"] | None = None

    def _problems(self) -> Iterator[str]:
        here, exact = self.device is not None, self.rounding == "exact"
        rules = {
            "precision": not here and self.precision is not None,
            "exact device": here and exact,
            "processors": here and self.strategy in ("compiled", "threads", "loop"),
            "exact vmap": exact and self.strategy == "vmap",
        }
        return refusals(__file__, rules, s=self)


def _seconds_or(*words: str) -> BeforeValidator:
    """One line for what is neither seconds nor one of these words."""

    def check(value: Any) -> Any:
        value = on_or_off(value)
        try:
            known = value in words or 0 < float(value) <= _LONGEST
        except (TypeError, ValueError, OverflowError):
            known = False
        if not known:
            raise ValueError(f"expected {', '.join(words)}, or seconds above 0 and at most {_LONGEST}")
        return value

    return BeforeValidator(check)


class DeploymentSettings(Section):
    """Settings for parties that each run a process of their own; a simulation is the same whatever they say.

    Attributes
    ----------
    alone_after : {"off"} or float
        Seconds after which a node of which no peer has acknowledged anything charges nothing more until one does. It
        begins nothing either before it has reached a neighbour. ``off``: it spends its budget alone.
    release_deadline : {"auto", "on", "off"} or float
        Whether a node gets the answers of its data side at multiples of a deadline, so that their times do not tell how
        many examples were sampled. ``auto``: for networks. ``on``: for linear models too. A number of
        seconds, for either: the deadline is the least multiple of these that a node can keep, by what it measures;
        otherwise it is as measured.
    """

    alone_after: Annotated[Literal["off"] | Annotated[float, Field(gt=0, le=_LONGEST)], _seconds_or("off")] = 30.0
    release_deadline: Annotated[
        Literal["auto", "on", "off"] | Annotated[float, Field(gt=0, le=_LONGEST)], _seconds_or("auto", "on", "off")
    ] = "auto"

    @property
    def alone_seconds(self) -> float:
        """Seconds after which a node that reaches nobody charges nothing more; infinite for never."""
        return math.inf if self.alone_after == "off" else self.alone_after


class PersonalisationSettings(Section):
    """A last training of the final model by each node on its own examples, which is never sent.

    It changes neither the run nor its guarantee. What comes of it is raw: it is for the node that made it, and for
    nobody else.

    Attributes
    ----------
    steps : int
        Mini-batch steps from the final model.
    learning_rate : float
        Learning rate of each step.
    momentum : float
        Momentum of the steps, as in PyTorch; 0 is plain SGD.
    proximal : float
        mu of mu/2 |w - x|^2, which is added to what a node minimises, to hold it near the final model x.
    batch_size : int
        Examples of a step: a node shuffles its own, and takes them in turn.
    """

    steps: int = Field(ge=1, le=1_000_000)
    learning_rate: OneRate = Field(default=0.1, gt=0, le=1e6)
    momentum: float = Field(default=0.0, ge=0, lt=1)
    proximal: float = Field(default=0.0, ge=0, le=1e6)
    batch_size: int = Field(default=16, ge=1, le=1_000_000)

    @property
    def query(self) -> TrainingQuery:
        """The training."""
        return TrainingQuery(self.steps, self.batch_size, self.learning_rate, self.momentum, self.proximal)


Plain: TypeAlias = str | Path | Mapping[str, Any]
"""What may stand for a section: its name, or its keys as plain data."""


class Experiment(Section, Spec):
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
    about: AboutSettings | None = None
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
            about: AboutSettings | Mapping[str, Any] | None = ...,
            seed: int = ...,
        ) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _an_empty_section_is_the_default(cls, values: Any) -> Any:
        if isinstance(values, dict):
            return {key: value for key, value in values.items() if value is not None}
        return values

    def _decide(self) -> None:
        algorithm = ALGORITHMS[self.algorithm.name]
        object.__setattr__(self, "algorithm", algorithm.decided(self.algorithm, self.private))
        default = algorithm.clips.default
        # A quantile is counted by Gaussian noise, and of examples' gradients.
        if isinstance(default, QuantileClip) and (self.privacy.mechanism != "gaussian" or self.terms.unit != EXAMPLE):
            default = FixedClip()
        decided: dict[str, Any] = {}
        if self.privacy.clip is None and (self.private or isinstance(default, StageClip)):
            decided["clip"] = default
        if self.terms.relation is not None and self.privacy.neighboring_relation is None:
            decided["neighboring_relation"] = self.terms.relation
        object.__setattr__(self, "privacy", self.privacy.model_copy(update=decided))

    def _problems(self) -> Iterator[str]:
        yield from ALGORITHMS[self.algorithm.name].check(self.algorithm, self)
        if self.objective.name == FOREIGN:
            yield from asked_of_foreign(self)
        privacy, seen, budget = self.privacy, self.evaluation, self.budget is not None
        ends_early = self.stop.accuracy is not None
        amount = budget or privacy.level is not None or privacy.agent_noise is not None
        rules = {
            "no noise": self.private and self.terms.noiseless,
            "no amount": self.private and not amount,
            "no mechanism": not self.private and budget,
            "known samples": privacy.shared_samples and self.secretive,
            "unproved noise": not privacy.proved and budget,
            "unproved rounds": not self.proved and budget,
            "unbounded": ends_early and not self.bounded,
            "unseen": ends_early and seen.name == "off",
            "by test examples": ends_early and seen.release and seen.public_path is None,
            "masked lies": self.faults.hostile is not None and (self.terms.hiding or self.terms.packed),
            "counted": isinstance(privacy.clip, QuantileClip) and privacy.mechanism == "l2_laplace",
        }
        level = "noise_multiplier" if privacy.mechanism == "gaussian" else "epsilon"
        yield from refusals(__file__, rules, s=self, level=level)
        if self.private and self.proved:
            how = "privacy.accept_weak: true (--set privacy.accept_weak=true)"
            if (problem := refused_delta(self.delta, privacy.accept_weak, how)) is not None:
                yield f"{'budget' if budget else 'privacy'}: {problem}"

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
    def secretive(self) -> bool:
        """Whether a run draws what nobody may guess, noise or masks, so that it needs a noise secret."""
        return not self.reproducible and (self.private or self.terms.hiding)

    @property
    def ends_by_clock(self) -> bool:
        """Whether the number of updates of a run depends on how long they take."""
        looks_by_clock = self.stop.accuracy is not None and self.evaluation.every_seconds is not None
        return self.stop.virtual_seconds is not None or looks_by_clock

    @property
    def away(self) -> bool:
        """Whether nodes are away at times."""
        return self.faults.away

    @property
    def disturbed(self) -> bool:
        """Whether nodes are away at times, or cut off from each other."""
        return self.away or bool(self.links.partitions)


def asked_of_foreign(spec: Experiment) -> Iterator[str]:
    """Lines on what a spec asks of code that is not Gossamer's and makes whole updates, and cannot ask."""
    algorithm, terms = spec.algorithm, spec.terms
    keys = {name: type(algorithm).model_fields[name].default for name in terms.training}
    own = [name for name, default in keys.items() if says(name, algorithm) or getattr(algorithm, name) != default]
    rules = {"no training": not keys, "foreign examples": keys and terms.unit == EXAMPLE, "own training": own}
    return refusals(__file__, rules, s=spec, own=own)


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


KINDS = (TOPOLOGIES, PARTITIONS, LOSSES)
"""Parts of a run that other distributions may register, beside algorithms."""


def of_others(experiment: Experiment) -> list[tuple[Kind, Registered]]:
    """Topologies, partitions and losses of a spec that other distributions register."""
    return used(experiment, KINDS)
