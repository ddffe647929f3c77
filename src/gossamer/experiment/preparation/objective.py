"""Building the objective that a spec names, in the shape of its data, and reading the model that nodes start from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load

from gossamer.bounded import MOST_RECORDS, read_file, real_path
from gossamer.data.datasets import Dataset
from gossamer.data.examples import Split
from gossamer.errors import ModelError, SpecError, counted, did_you_mean
from gossamer.experiment.specs.spec import Experiment, PretrainedSettings
from gossamer.objectives.linear.losses import LOSSES
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.loss_settings import said_of
from gossamer.objectives.objective import Objective
from gossamer.parameters import Part, pack
from gossamer.randomness import stream
from gossamer.vectors import Public

if TYPE_CHECKING:
    from gossamer.objectives.models import Given


def objective_of(experiment: Experiment, dataset: Dataset, module: Given | None) -> tuple[Objective, bytes]:
    """Build the objective; with it comes a digest of a ``module`` that was given from memory, empty if none was."""
    if module is None:
        return build_objective(experiment, dataset), b""
    from gossamer.objectives.models import made

    found = made(module, tuple(dataset.train.features.shape[1:]), _outputs(experiment, dataset))
    return _trained(found.module, experiment, dataset, started=found.started), found.code


def build_objective(experiment: Experiment, dataset: Dataset) -> Objective:
    """Build the objective that the spec names, in the shape of the data.

    Raises
    ------
    SpecError
        If it does not exist.
    """
    settings = experiment.objective
    name = settings.name or ("softmax" if dataset.classes else "squared")
    if settings.module is None and name in LOSSES:
        if settings.loss is not None:
            raise SpecError(
                f"objective.loss is for networks; {name} is a loss itself, so leave it out, or name a network"
            )
        return _linear(name, experiment, dataset)
    return _network(name, experiment, dataset)


def _linear(name: str, experiment: Experiment, dataset: Dataset) -> Objective:
    settings, compute = experiment.objective, experiment.compute
    features = int(np.prod(dataset.train.features.shape[1:]))
    made: Callable[..., Objective] = LinearModel
    if compute.device is not None:
        # Devices need torch, which is optional, so it is imported only here.
        from gossamer.objectives.device.device import device_of
        from gossamer.objectives.device.linear import DeviceLinear

        if compute.precision == "bfloat16":
            raise SpecError(f"compute.precision: bfloat16 is for networks, and {name} is a linear model; leave it out")
        made = partial(DeviceLinear, device_of(compute.device, compute.memory_mib, compute.precision))
    dtype = np.dtype(settings.dtype)
    return made(name, features, dataset.classes, l2=settings.l2, intercept=settings.intercept, dtype=dtype)


def _network(name: str, experiment: Experiment, dataset: Dataset) -> Objective:
    # Networks need torch, which is optional, so it is imported only here.
    from gossamer.objectives.models import MODELS, build_model, load_module

    settings = experiment.objective
    if settings.module is None and name not in MODELS:
        raise SpecError(f"objective.name: unknown name {name!r}{did_you_mean(name, [*LOSSES, *MODELS])}")
    shape: tuple[int, ...] = tuple(dataset.train.features.shape[1:])
    outputs = _outputs(experiment, dataset)
    module = load_module(settings.module, shape, outputs) if settings.module else build_model(name, shape, outputs)
    return _trained(module, experiment, dataset)


def _outputs(experiment: Experiment, dataset: Dataset) -> int:
    """Number of outputs that the network is to have."""
    from gossamer.objectives.networks.network import loss_of

    classes, loss = dataset.classes, experiment.objective.loss
    found = None if loss is None else loss_of(said_of(loss), classes).wanted
    return found or classes or 1


def _trained(module: Any, experiment: Experiment, dataset: Dataset, *, started: bool = False) -> Objective:
    """The loss of a ``torch.nn.Module``; ``started`` from its own parameters."""
    from gossamer.objectives.networks.module import TorchModule

    settings = experiment.objective
    if settings.dtype != "float32":
        raise SpecError(f"objective.dtype of a network must be float32, found {settings.dtype}")
    if not settings.intercept:
        raise SpecError("objective.intercept: false is for linear models; a network's module says where it has biases")
    usual = "cross_entropy" if dataset.classes else "mse"
    compute = experiment.compute
    made: Callable[..., Objective] = TorchModule
    if compute.device is not None:
        from gossamer.objectives.device.device import device_of
        from gossamer.objectives.device.network import DeviceNetwork

        made = partial(DeviceNetwork, device_of(compute.device, compute.memory_mib, compute.precision))
    network = made(
        module,
        loss=usual if settings.loss is None else said_of(settings.loss),
        l2=settings.l2,
        memory_mib=compute.memory_mib,
        strategy=compute.strategy,
        pretrained=started,
        exact=compute.rounding == "exact",
        classes=dataset.classes,
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
    try:
        content = read_file(settings.path, MOST_RECORDS)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise _wrong(
            settings.path, f"cannot be read ({reason}); give a safetensors file (a party: --pretrained FILE)"
        ) from None
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
    try:
        arrays: dict[str, npt.NDArray[Any]] = load(content)
    except KeyError as error:
        raise _wrong(path, f"has numbers of type {error.args[0]}; save them as float16, float32 or float64") from None
    except (SafetensorError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise _wrong(path, f"is no safetensors file ({reason}); save the model's state_dict as one") from None
    if differing := _differences(arrays, parts):
        more = f", and {counted(len(differing) - _NAMED, 'more difference')}" if len(differing) > _NAMED else ""
        raise _wrong(path, f"is of another model: {'; '.join(differing[:_NAMED])}{more}")
    with np.errstate(over="ignore"):
        vector = Public(pack(arrays, parts, dtype))
    if not vector.is_within():
        raise _wrong(path, f"has numbers that are not finite, or too large for {np.dtype(dtype)}; give a sound model")
    return vector, known


def _differences(arrays: Mapping[str, npt.NDArray[Any]], parts: Sequence[Part]) -> list[str]:
    """Differences of a file's arrays from a model's parts."""
    found = []
    for part in parts:
        array = arrays.get(part.name)
        if array is None:
            found.append(f"{part.name} {list(part.shape)} is missing")
        elif array.shape != part.shape:
            found.append(f"{part.name} is {list(array.shape)}, expected {list(part.shape)}")
        elif array.dtype.kind != "f":
            found.append(f"{part.name} holds {array.dtype}, expected floating-point numbers")
    known = {part.name for part in parts}
    return found + [f"{name[:80]!r} is not in the objective" for name in sorted(arrays.keys() - known)]


def _wrong(path: Path | None, what: str) -> SpecError:
    return SpecError(f"objective.pretrained: {path} {what}")
