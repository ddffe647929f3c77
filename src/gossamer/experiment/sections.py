"""Sections of a spec that are about neither data nor algorithms: objective, evaluation, compute, deployment."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, model_validator

from gossamer.algorithms.optimizer import OneRate
from gossamer.experiment.pretrained import PretrainedSettings
from gossamer.objectives.loss_settings import LossSettings
from gossamer.privacy.unit_tasks import TrainingQuery
from gossamer.section import Section, bare

_LONGEST = 86400


def on_or_off(value: Any) -> Any:
    """YAML 1.1 reads on and off as truth values."""
    return {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value


class ObjectiveSettings(Section):
    """Settings of what is minimised.

    Attributes
    ----------
    name : str, optional
        ``logistic``, ``softmax``, ``squared``, ``squared_error`` (the same without its 1/2), ``hinge``, or a network:
        ``mlp``, ``lenet5``, ``cnn_mapa``, ... By default ``softmax`` for classes and ``squared`` for real targets.
    module : str, optional
        One's own ``torch.nn.Module`` as ``package.module:Class``, instead of a name.
    l2 : float
        Strength of the L2 term; its gradient depends on no data and is added after the noise.
    loss : str or mapping, optional
        Of a network: ``cross_entropy``, ``mse``, or one that another distribution registers, by its name or with its
        settings. By default what the targets ask for.
    dtype : {"float32", "float64"}
        Of linear models; networks are float32.
    intercept : bool
        Whether a linear model has a bias; a network always has its own.
    pretrained : path or mapping, optional
        A safetensors file with the model that all nodes start from; by default one that is drawn. It must not come from
        the private data.
    """

    name: str | None = None
    module: str | None = None
    l2: float = Field(default=0.0, ge=0)
    loss: LossSettings | None = None
    dtype: Literal["float32", "float64"] = "float32"
    intercept: bool = True
    pretrained: Annotated[PretrainedSettings | None, bare("path")] = None

    @model_validator(mode="after")
    def _one_of_both(self) -> ObjectiveSettings:
        if self.name is not None and self.module is not None:
            raise ValueError(f"give a name or a module, found both {self.name!r} and {self.module!r}")
        return self


class EvaluationSettings(Section):
    """Moments at which an observer that nodes cannot see looks at their models; the end is always one.

    Attributes
    ----------
    name : {"on", "off"}
        ``off``: at the end only.
    every_updates, every_seconds : optional
        Updates of all nodes, or virtual seconds, between evaluations. Without either, there are twenty a run.
    nodes : int, optional
        How many nodes' own models are tested, evenly spaced; None is all.
    public_path : path, optional
        A file of public examples, read as ``dataset`` says: the run's model is tested on them, too, and
        ``stop.accuracy`` goes by them in the place of the test examples.
    """

    name: Literal["on", "off"] = "on"
    every_updates: PositiveInt | None = None
    every_seconds: PositiveFloat | None = None
    nodes: PositiveInt | None = None
    public_path: Path | None = None


class ComputeSettings(Section):
    """Ways to compute results, which change only speed, and results in the last digits.

    Attributes
    ----------
    width : int
        Most computations gathered into one call; 1 computes each on its own.
    strategy : {"auto", "compiled", "layers", "vmap", "threads", "loop"}
        How networks are computed; ``auto`` reads a fixed table. ``compiled``: a kernel for chains of layers.
        ``layers``: by rules for each layer. ``vmap``: one call of ``torch.func`` for all. ``threads``: a call for each
        node, on worker threads. ``loop``: a backward pass for each example.
    memory_mib : int
        Bound on the working memory of networks, in MiB.
    rounding : {"reproducible", "exact"}, optional
        What gradients have the same bits for. ``reproducible``: the same run again; the default of simulations.
        ``exact``: an example, whatever others are computed beside it; deployed parties always compute so. Linear
        models and compiled networks do both at no cost; other networks then take examples one at a time.
    device : {"auto", "cpu", "cuda"}, optional
        Where simulations compute sums of gradients, normal noise on them and networks' evaluations, by PyTorch.
        ``cuda``: on a graphics card. ``cpu``: the same on the processor, which is slower than without. ``auto``: on a
        graphics card where there is one. By default everything is computed on the processor in the usual way.
    precision : {"tf32", "bfloat16"}, optional
        Of products on a device. ``bfloat16``: of forward and backward passes of networks. ``tf32``: of all that are in
        float32, on graphics cards. By default all are in float32; norms, clipping, sums and noise always are.
    """

    width: PositiveInt = 1024
    strategy: Literal["auto", "compiled", "layers", "vmap", "threads", "loop"] = "auto"
    memory_mib: PositiveInt = 512
    rounding: Literal["reproducible", "exact"] | None = None
    device: Literal["auto", "cpu", "cuda"] | None = None
    precision: Literal["tf32", "bfloat16"] | None = None

    @model_validator(mode="after")
    def _of_a_device(self) -> ComputeSettings:
        if self.device is None and self.precision is not None:
            raise ValueError(f"precision: {self.precision} is for sums on a device; say which, such as device: auto")
        if self.device is not None and self.rounding == "exact":
            raise ValueError(
                "a device rounds a gradient by what is computed beside it, which rounding: exact rules out; leave out "
                "one of both"
            )
        if self.device is not None and self.strategy in ("compiled", "threads", "loop"):
            raise ValueError(
                f"strategy: {self.strategy} is for processors, and a device has auto, layers and vmap; choose auto"
            )
        return self

    @model_validator(mode="after")
    def _no_company(self) -> ComputeSettings:
        if self.rounding == "exact" and self.strategy == "vmap":
            raise ValueError(
                "strategy: vmap rounds a gradient by what is computed beside it, which rounding: exact rules out; "
                "choose strategy: auto"
            )
        return self


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
        Of each step.
    momentum : float
        Of the steps, as in PyTorch; 0 is plain SGD.
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
