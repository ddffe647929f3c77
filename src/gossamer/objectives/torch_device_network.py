"""Networks on a device: their clipped sums, and how they score."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.split import Split
from gossamer.errors import DataError, ModelError
from gossamer.objectives.asked import Evaluation, Gradients
from gossamer.objectives.computing import Computing
from gossamer.objectives.noisy import Normals
from gossamer.objectives.torch_device import Device
from gossamer.objectives.torch_device_sums import Examples, Limits, SumsThere, summed
from gossamer.objectives.torch_examples import check_indices
from gossamer.objectives.torch_gradients import Sums
from gossamer.objectives.torch_module import TorchModule
from gossamer.objectives.torch_network import Network
from gossamer.objectives.torch_plan import Plan
from gossamer.objectives.torch_stacked import StackedExamples, StackedGradients
from gossamer.objectives.torch_taps import is_of_torch

_ENOUGH = 2**22
"""Numbers that the layers of a node's examples put out, with which a graphics card is busy without other nodes."""
_COPIES, _GRADIENTS = 8.0, 1.5
"""Numbers held for each that a layer puts out: inputs, gradients, patches; and for each of a gradient that is
formed."""


class _Held(NamedTuple):
    """A split on the device."""

    features: Tensor
    targets: Tensor


class _Work(NamedTuple):
    """Ways to gradients and to outputs for examples of one shape, and how many at once."""

    method: StackedGradients | StackedExamples
    network: Network
    limits: Limits
    rows: int
    strategy: str


class DeviceNetwork(SumsThere, TorchModule):
    """A network whose clipped sums and scores are computed on a device; all else is as in `TorchModule`.

    A gradient whose squared norm leaves the range of float32 counts as zero, like one that is not finite.

    Parameters
    ----------
    device : Device
        Where.
    module : torch.nn.Module
        As of `TorchModule`.
    **settings
        Of `TorchModule`.
    """

    def __init__(self, device: Device, module: nn.Module, **settings: Any) -> None:
        super().__init__(module, **settings)
        self._again: Callable[[], TorchModule] = partial(TorchModule, module, **settings)
        self._kernels, self.device = False, device
        self._work: dict[int, _Work] = {}
        self._held: WeakKeyDictionary[Split, _Held] = WeakKeyDictionary()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_work": {}, "_held": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "_held": WeakKeyDictionary()})

    def steady(self) -> TorchModule:
        """The network on the processor, as deployed parties compute it."""
        return self._again().steady()

    def computing(self) -> Computing:
        """See `Objective.computing`."""
        work = next(iter(self._work.values()), None)
        return Computing(self.strategy if work is None else work.strategy, device=self.device.title)

    def evaluate(self, models: FloatArray, split: Split) -> Evaluation:
        """See `TorchModule.evaluate`."""
        if len(split) == 0:
            raise DataError("an evaluation needs at least 1 example, found an empty split")
        plan, models = self.plan(split), self._rows(models, len(models))
        work, held = self._way(plan), self._on_device(split)
        totals = torch.zeros((len(models), 2), dtype=torch.float64, device=self.device.place)
        with self.device.computing(work.rows), torch.no_grad():
            for row, model in enumerate(models):
                parameters = work.network.parameters(self.device.upload(model))
                for start in range(0, len(split), work.rows):
                    part = slice(start, start + work.rows)
                    outputs, targets = work.network.outputs(parameters, held.features[part]), held.targets[part]
                    totals[row, 0] += work.network.loss.values(outputs, targets).double().sum()
                    if plan.classes:
                        totals[row, 1] += (work.network.loss.scores(outputs).argmax(1) == targets).sum()
        loss, correct = self.device.download(totals).T / len(split)
        return Evaluation(loss, correct if plan.classes else np.full_like(loss, np.nan))

    def _sums(
        self,
        models: FloatArray,
        data: Split,
        batches: Sequence[IndexArray],
        clips: npt.NDArray[np.floating],
        noise: Normals | None,
    ) -> Gradients:
        work, held = self._way(self.plan(data)), self._on_device(data)
        check_indices(batches, len(data))
        models = self._rows(models, len(batches))

        def method(some: Tensor, examples: Examples, limit: Tensor) -> Sums:
            places, present = examples
            with torch.enable_grad():
                return work.method(some, held.features[places], held.targets[places], present, limit)

        return summed(self.device, method, work.limits, models, batches, clips, noise)

    def _way(self, plan: Plan) -> _Work:
        if (known := self._work.get(id(plan))) is None:
            known = self._work[id(plan)] = self._made(plan)
        return known

    def _made(self, plan: Plan) -> _Work:
        def moved(network: Network) -> Network:
            return replace(network, module=copy.deepcopy(network.module).to(self.device.place))

        if plan.strategy == "loop":
            raise ModelError(f"compute.device: {plan.unchained}, which a device needs; leave compute.device out")
        stacked = plan.strategy == "layers" and is_of_torch(plan.network.module)
        with self.device.computing():
            kind = StackedGradients if stacked else StackedExamples
            method = kind(moved(plan.network), self.device.passing)
            network = moved(self._network)
        formed = 0 if stacked else _GRADIENTS * self.size
        each = (_COPIES * plan.put_out + formed) * self.dtype.itemsize
        most = max(1, int(self.device.memory / each))
        limits = Limits(most, max(1, _ENOUGH // max(1, plan.put_out)))
        rows = max(1, self.device.memory // (2 * plan.put_out * self.dtype.itemsize))
        return _Work(method, network, limits, rows, "stacked layers" if stacked else "stacked examples")

    def _on_device(self, data: Split) -> _Held:
        if (known := self._held.get(data)) is not None:
            return known
        whole = slice(0, len(data))
        with self.device.computing():
            features, targets = self._tensors.features(data, whole), self._tensors.targets(data, whole)
            held = _Held(features.to(self.device.place), targets.to(self.device.place))
        return self._held.setdefault(data, held)
