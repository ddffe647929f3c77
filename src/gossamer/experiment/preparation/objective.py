"""Building the objective that a spec names, in the shape of its data, and reading the model that nodes start from."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load

from gossamer.arrays import FloatArray, Floats, IntArray
from gossamer.data.datasets import Dataset
from gossamer.data.declaration import unit_norm as to_unit_norm
from gossamer.data.examples import Features, Split
from gossamer.errors import DataError, ModelError, RunWarning, SpecError, did_you_mean, failing_as, listed
from gossamer.experiment.specs.spec import Experiment, ObjectiveSettings, PretrainedSettings
from gossamer.files import MOST_RECORDS, read_file, real_path
from gossamer.objectives.class_weights import shares_of, weights_of
from gossamer.objectives.linear.kernels import LOSSES
from gossamer.objectives.linear.model import WEIGHED, LinearModel
from gossamer.objectives.network_settings import said_of
from gossamer.objectives.objective import FOREIGN, Foreign, Objective
from gossamer.randomness import stream
from gossamer.vectors import Part, Public, pack

if TYPE_CHECKING:
    from gossamer.objectives.models import Given


# Guesses of s, L and D_F for those who do not know them, from examples that are nobody's secret.
#
# MAPA's stages are computed from the spread of gradients, the smoothness and the loss at the start. Computed from the
# data that a run protects, these would be releases that no ledger covers. So the sample is synthetic, drawn from
# nothing but the shape of the examples.
#
# An estimate that is wrong makes a poor schedule, never a wrong guarantee.

SAMPLE = 512
"""Examples in a sample, unless the caller says otherwise."""

_ENTRIES = 2**22  # numbers in the per-example gradients held at once
_ITERATIONS = 12  # of the power iteration
_DOUBLINGS = 30  # of the finite differences' step, where the gradient does not change

_Gradient = Callable[[Floats], Floats]


@dataclass(frozen=True)
class SampledConstants:
    """Guesses of a problem's constants, to be printed with whatever is computed from them.

    Attributes
    ----------
    gradient_sd : float
        s: root of the mean squared distance of an example's gradient from the mean gradient, at the initial model.
    smoothness : float
        L.
    loss_gap : float
        D_F: the mean loss at the initial model, L2 term included. Losses are at least 0, so F(x_0) - F* is no more.
    examples : int
        Size of the sample.
    smoothness_by : str
        Way in which L was found.
    """

    gradient_sd: float
    smoothness: float
    loss_gap: float
    examples: int
    smoothness_by: str


def estimate_problem(objective: Objective, sample: Split, initial: FloatArray, seed: int) -> SampledConstants:
    """Estimate s, L and D_F on a public or synthetic sample.

    Parameters
    ----------
    objective : Objective
        Objective that is minimised.
    sample : Split
        Sample of at least 2 examples; never the data that a run protects.
    initial : ndarray [size]
        x_0.
    seed : int
        Seed of the power iteration's starting direction; public.

    Raises
    ------
    DataError
        If the sample is too small, a gradient or the loss is not finite, all gradients are equal, or the gradient does
        not change near the initial model.
    """
    if len(sample) < 2:
        raise DataError(f"estimates need a sample of at least 2 examples, found {len(sample)}")
    start = np.asarray(initial, objective.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        spread = _gradient_sd(objective, sample, start)
        loss = float(objective.evaluate(start[None], sample).loss[0])
        smoothness, how = _smoothness(objective, sample, start, seed)
    gap = loss + objective.l2 / 2 * float(np.square(start, dtype=np.float64).sum())
    for name, value, flaw in (
        ("gradient_sd", spread, "all gradients are equal"),
        ("loss_gap", gap, "the loss is 0 at the initial model"),
        ("smoothness", smoothness, "the gradient does not change near the initial model"),
    ):
        if not 0 < value < math.inf:
            why = flaw if value == 0 else "gradients or losses are not finite"
            raise DataError(f"{name} cannot be estimated from this sample, as {why}; give {name} itself")
    return SampledConstants(spread, smoothness, gap, len(sample), how)


def _gradient_sd(objective: Objective, sample: Split, model: FloatArray) -> float:
    width = max(1, _ENTRIES // objective.size)
    count, mean, squares = 0, np.zeros(objective.size), 0.0
    for first in range(0, len(sample), width):
        rows = np.arange(first, min(first + width, len(sample)))
        gradients = _gradients(objective, sample, np.repeat(model[None], len(rows), 0), [np.array([i]) for i in rows])
        # Chan, Golub and LeVeque (1983): the squares of a union from those of its parts, without cancellation.
        middle = gradients.mean(axis=0)
        away = middle - mean
        total = count + len(rows)
        squares += float(np.square(gradients - middle).sum()) + float(away @ away) * count * len(rows) / total
        mean += away * len(rows) / total
        count = total
    return math.sqrt(squares / count)


def _gradients(objective: Objective, sample: Split, models: FloatArray, batches: list[IntArray]) -> Floats:
    """Sums of unclipped gradients [width, size]; NaN where one is not finite."""
    found = objective.clipped_gradients(models, sample, batches, math.inf)
    return np.where(found.zeroed[:, None] > 0, np.nan, found.sums.astype(np.float64))


def _smoothness(objective: Objective, sample: Split, start: FloatArray, seed: int) -> tuple[float, str]:
    if (known := objective.smoothness(sample)) is not None:
        return known, "the objective's bound on the sample"
    everything = [np.arange(len(sample))]

    def gradient(model: Floats) -> Floats:
        row = model[None].astype(objective.dtype)
        return np.asarray(_gradients(objective, sample, row, everything)[0] / len(sample))

    # About where rounding and curvature disturb a central difference equally.
    step = float(np.finfo(objective.dtype).eps) ** (1 / 3) * (1 + float(np.linalg.norm(start)))
    slope, step = _largest_slope(gradient, start.astype(np.float64), step, seed)
    how = f"finite differences over {step:.2g} at the initial model; an estimate, which may be too small"
    return (slope + objective.l2 if slope else slope), how


def _largest_slope(gradient: _Gradient, start: Floats, step: float, seed: int) -> tuple[float, float]:
    """The largest ||gradient(u) - gradient(v)|| / ||u - v|| of a power iteration at ``start``, and its step.

    Where the gradient does not change within ``step``, as that of a hinge, which bends at kinks only, the step is
    doubled until it does.
    """
    generator = stream(seed, "smoothness")
    direction = generator.standard_normal(start.shape)
    # The gradient's own direction moves outputs most, and so finds the kinks; the random one meets every eigenvector.
    direction = _unit(_unit(gradient(start)) + _unit(direction) / 2)
    for _ in range(_DOUBLINGS):
        largest = 0.0
        for _ in range(_ITERATIONS):
            image = (gradient(start + step * direction) - gradient(start - step * direction)) / (2 * step)
            slope = float(np.linalg.norm(image))
            if slope == 0:
                break
            if not math.isfinite(slope):
                return slope, step
            largest = max(largest, slope)
            direction = image / slope
        if largest:
            return largest, step
        step *= 2
    return 0.0, step


def _unit(vector: Floats) -> Floats:
    norm = float(np.linalg.norm(vector))
    return vector / norm if norm else vector


def synthetic_sample(
    shape: tuple[int, ...], classes: int | None, count: int = SAMPLE, seed: int = 0, *, unit_norm: bool = False
) -> Split:
    """Examples of the right shape that were drawn without looking at any data.

    Features are uniform on [0, 1] where an example has more than one axis, as a picture has, and standard normal
    otherwise. Labels are uniform over the classes, and real targets standard normal.

    Parameters
    ----------
    shape : tuple of int
        Shape of one example, such as (784,) or (1, 28, 28).
    classes : int or None
        Number of classes; None for a regression.
    count : int
        Number of examples.
    seed : int
        Public.
    unit_norm : bool
        Whether each example is scaled to an L2 norm of 1, as ``dataset.normalise: unit_norm`` does.
    """
    generator = stream(seed, "synthetic sample")
    draw = generator.random if len(shape) > 1 else generator.standard_normal
    features: Features = draw((count, *shape), dtype=np.float32)
    targets: npt.NDArray[Any] = (
        generator.standard_normal(count, dtype=np.float32)
        if classes is None
        else generator.integers(classes, size=count)
    )
    return Split(to_unit_norm(features) if unit_norm else features, targets)


def with_estimates(
    experiment: Experiment,
    missing: Sequence[str],
    objective: Objective,
    dataset: Dataset,
    initial: FloatArray,
    seed: int,
) -> tuple[Experiment, str]:
    """The experiment with constants that its algorithm needs and it leaves out, and a line on where they are from.

    Parameters
    ----------
    experiment : Experiment
        Experiment whose algorithm needs them.
    missing : sequence of str
        Names of the constants.
    objective : Objective
        Objective that is minimised.
    dataset : Dataset
        The protected one: the shape of its examples and the number of its classes are looked at.
    initial : ndarray [size]
        The common starting model.
    seed : int
        Public.

    Raises
    ------
    DataError
        If nothing can be estimated.
    """
    shape, unit_norm = tuple(dataset.train.features.shape[1:]), experiment.dataset.normalise == "unit_norm"
    sample = synthetic_sample(shape, dataset.classes, seed=seed, unit_norm=unit_norm)
    found = estimate_problem(objective, sample, initial, seed)
    constants = {name: getattr(found, name) for name in missing}
    how = {"smoothness": f" ({found.smoothness_by})"}
    said = ", ".join(f"{name} {value:.4g}{how.get(name, '')}" for name, value in constants.items())
    complete = experiment.model_copy(update={"algorithm": experiment.algorithm.model_copy(update=constants)})
    return complete, f"estimated on {found.examples} examples that are not the nodes': {said}"


def objective_of(experiment: Experiment, dataset: Dataset, module: Given | Objective | None) -> tuple[Objective, bytes]:
    """Build the objective; with it comes a digest of a ``module`` that was given from memory, empty if none was."""
    if module is None:
        return build_objective(experiment, dataset), b""
    if isinstance(module, Objective):
        return module, module.foreign
    from gossamer.objectives.models import made

    found = made(module, tuple(dataset.train.features.shape[1:]), _outputs(experiment, dataset))
    if not found.started:
        _warn_of_places(dataset)
    return _trained(found.module, experiment, dataset, started=found.started), found.code


def build_objective(experiment: Experiment, dataset: Dataset) -> Objective:
    """Build the objective that the spec names, in the shape of the data.

    Raises
    ------
    SpecError
        If it does not exist.
    """
    settings = experiment.objective
    if settings.name == FOREIGN:
        return _foreign(settings)
    name = settings.name or ("softmax" if dataset.classes else "squared")
    if settings.module is None and name in LOSSES:
        if settings.loss is not None:
            raise SpecError(
                f"objective.loss is for networks; {name} is a loss itself, so leave it out, or name a network"
            )
        if settings.adapters is not None:
            raise SpecError(f"objective.adapters are for networks, found {name}; leave them out, or name a network")
        return _linear(name, experiment, dataset)
    return _network(name, experiment, dataset)


def _foreign(settings: ObjectiveSettings) -> Objective:
    start, own = settings.pretrained, dict.fromkeys(("name", "pretrained", "frozen"))
    if start is None or settings.model_copy(update=own) != ObjectiveSettings():
        raise SpecError("objective: foreign code has a loss of its own; give name, pretrained and nothing else")
    arrays = _arrays(pretrained_file(start)[0], start.path)
    parts = tuple(Part(name, arrays[name].shape) for name in sorted(arrays))
    return Foreign(parts, np.result_type(np.float32, *arrays.values()))


def _linear(name: str, experiment: Experiment, dataset: Dataset) -> Objective:
    if dataset.train.targets.ndim > 1:
        raise DataError(f"y: {name} has one target an example, found several; give one, or a network with module=")
    settings, compute = experiment.objective, experiment.compute
    features = int(np.prod(dataset.train.features.shape[1:]))
    if compute.precision is not None:
        raise SpecError(
            f"compute.precision: {compute.precision} is for networks, and {name} is a linear model; leave it out"
        )
    if name == "poisson" and dataset.target_range is not None:
        raise SpecError(
            "objective: poisson is for counts as they are, and dataset.target_range would scale them; say "
            "dataset.target_range: none"
        )
    shares = shares_of(experiment.dataset.prevalence)
    return LinearModel(
        name,
        features,
        dataset.classes,
        l2=settings.l2,
        intercept=settings.intercept,
        dtype=np.dtype(settings.dtype),
        class_weight=weights_of(settings.class_weight, shares, dataset.labels),
        prevalence=shares if settings.intercept and name in WEIGHED else None,
    )


def _network(name: str, experiment: Experiment, dataset: Dataset) -> Objective:
    # Networks need torch, which is optional, so it is imported only here.
    from gossamer.objectives.models import MODELS, build_model, load_module

    settings = experiment.objective
    if settings.module is None and name not in MODELS:
        raise SpecError(f"objective.name: unknown name {name!r}{did_you_mean(name, [*LOSSES, *MODELS])}")
    shape: tuple[int, ...] = tuple(dataset.train.features.shape[1:])
    outputs = _outputs(experiment, dataset)
    _warn_of_places(dataset)
    module = load_module(settings.module, shape, outputs) if settings.module else build_model(name, shape, outputs)
    return _trained(module, experiment, dataset)


def _warn_of_places(dataset: Dataset) -> None:
    """Warn where a network is made for as many classes as private examples have, a class for each place."""
    if dataset.train.targets.ndim > 2:
        warnings.warn(
            "y: how many classes there are is found in the private rows, and a module that is made for so many tells "
            "it, which no epsilon covers; give the module itself, such as module=Net(classes=4)",
            RunWarning,
            stacklevel=2,
        )


def _outputs(experiment: Experiment, dataset: Dataset) -> int:
    """Number of outputs that the network is to have."""
    from gossamer.objectives.networks.network import loss_of

    classes, loss = dataset.classes, experiment.objective.loss
    found, targets = None if loss is None else loss_of(said_of(loss), classes).wanted, dataset.train.targets
    several = int(targets.max(initial=0)) + 1 if targets.ndim > 2 else targets.shape[-1] if targets.ndim == 2 else 1
    return found or classes or several


def _trained(module: Any, experiment: Experiment, dataset: Dataset, *, started: bool = False) -> Objective:
    """The loss of a ``torch.nn.Module``; ``started`` from its own parameters."""
    from gossamer.objectives.networks.adapters import adapt
    from gossamer.objectives.networks.module import TorchModule

    settings = experiment.objective
    if settings.dtype != "float32":
        raise SpecError(f"objective.dtype of a network must be float32, found {settings.dtype}")
    if not settings.intercept:
        raise SpecError("objective.intercept: false is for linear models; a network's module says where it has biases")
    axes = dataset.train.targets.ndim
    usual = "cross_entropy" if dataset.classes or axes > 2 else "binary_cross_entropy" if axes == 2 else "mse"
    compute = experiment.compute
    made: Callable[..., Objective] = TorchModule
    if compute.device is not None:
        from gossamer.objectives.device.device import device_of
        from gossamer.objectives.device.network import DeviceNetwork

        made = partial(DeviceNetwork, device_of(compute.device, compute.memory_mib, compute.precision))
    if (adapters := settings.adapters) is not None:
        module = adapt(module, adapters)
    shares = shares_of(experiment.dataset.prevalence)
    network = made(
        module,
        loss=usual if settings.loss is None else said_of(settings.loss),
        l2=settings.l2,
        memory_mib=compute.memory_mib,
        strategy=compute.strategy,
        pretrained=started and adapters is None,
        exact=compute.rounding == "exact",
        classes=dataset.classes,
        class_weight=weights_of(settings.class_weight, shares, dataset.labels),
    )
    if len(dataset.train.targets):  # a server has none
        _try(network, dataset)
    return network


def _try(network: Objective, dataset: Dataset) -> None:
    """Take one gradient, so that a module that cannot be trained is refused before anything is written."""
    model = network.initial(stream(0))[None]
    network.clipped_gradients(model, dataset.train, [np.arange(1)], 1.0)
    one = Split(dataset.train.features[:1], dataset.train.targets[:1])
    if not np.isfinite(network.evaluate(model, one).loss).all():
        raise ModelError("the module's loss is not finite at its initial parameters; check its outputs and its loss")


# Whoever names a file that nodes start from says that it does not come from the private data: guarantees assume that,
# and nothing here can check it.

_NAMED = 5
"""Most differences that an error lists."""


def pretrained_file(settings: PretrainedSettings) -> tuple[bytes, PretrainedSettings]:
    """Content of the file, and the settings with its hash.

    Raises
    ------
    SpecError
        If there is no such file, or it has another hash than the settings say.
    """
    if settings.path is None:
        raise SpecError(f"objective.pretrained: where is the file with SHA-256 {settings.sha256}? give its path")
    odd, remedy = (OSError, ValueError), "); give a safetensors file (a party: --pretrained FILE)"
    with failing_as(SpecError, f"objective.pretrained: {settings.path} cannot be read (", remedy, odd):
        content = read_file(settings.path, MOST_RECORDS)
    found = hashlib.sha256(content).hexdigest()
    if settings.sha256 not in (None, found):
        raise _wrong(
            settings.path, f"expected SHA-256 {settings.sha256}, found {found}; give the file that was agreed on"
        )
    return content, settings.model_copy(update={"path": real_path(settings.path), "sha256": found})


def read_pretrained(
    settings: PretrainedSettings, parts: Sequence[Part], dtype: npt.DTypeLike
) -> tuple[Public, PretrainedSettings]:
    """The model in a file, [sum of the parts' sizes], and the settings with the file's hash.

    Raises
    ------
    SpecError
        If the file is not readable, is not the one with that hash, does not hold exactly the arrays that ``parts``
        names, in their shapes, or holds a number that is not finite.
    """
    (content, known), path = pretrained_file(settings), settings.path
    arrays = _arrays(content, path)
    wanted = {f"{part.name!r} {list(part.shape)}" for part in parts}
    kinds = {name: "" if array.dtype.kind == "f" else f" of {array.dtype}" for name, array in arrays.items()}
    found = {f"{name!r} {list(array.shape)}{kinds[name]}" for name, array in arrays.items()}
    if wanted != found:
        lacking, other = (listed(sorted(some))[:300] or "nothing" for some in (wanted - found, found - wanted))
        raise _wrong(path, f"is of another model: expected {lacking}, found {other} in the place; give one of this")
    with np.errstate(over="ignore"):
        vector = Public(pack(arrays, parts, dtype))
    if not vector.is_within():
        raise _wrong(path, f"has numbers that are not finite, or too large for {np.dtype(dtype)}; give a sound model")
    return vector, known


def _arrays(content: bytes, path: Path | None) -> dict[str, npt.NDArray[Any]]:
    try:
        return load(content)
    except KeyError as error:
        raise _wrong(path, f"has numbers of type {error.args[0]}; save them as float16, float32 or float64") from None
    except (SafetensorError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise _wrong(path, f"is no safetensors file ({reason}); save the model's state_dict as one") from None


def _wrong(path: Path | None, what: str) -> SpecError:
    return SpecError(f"objective.pretrained: {path} {what}")
