"""A model with all its arithmetic as one PyTorch module, from raw numbers to probabilities; and as a graph in files."""

from __future__ import annotations

import copy
import io
import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import gossamer.objectives.networks.torch_extra  # noqa: F401  (says how to install torch where it is missing)

# isort: split
import torch
from torch import Tensor, nn

from gossamer.arrays import Floats
from gossamer.data.columns import Column
from gossamer.data.declaration import Declaration
from gossamer.data.settings import ConstantScale
from gossamer.errors import ModelError
from gossamer.objectives.networks.module import TorchModule
from gossamer.objectives.networks.network import NetworkLoss, scores_of
from gossamer.trained.card import METADATA
from gossamer.trained.model import Model

_AS_IT_IS = (math.nan, -math.inf, math.inf, 0.0, 1.0)


def _of_column(column: Column, scaled: bool) -> list[tuple[float, float, float, float, float]]:
    """Filling, least, most, shift and unit of each input of a column."""
    rest = [_AS_IT_IS] * len(column.names(""))
    if not column.is_number and column.kind != "boolean":
        return rest
    filling = math.nan if column.missing is None else float(column.missing)
    low, high = column.range if scaled and column.range is not None else (-math.inf, math.inf)
    shift, unit = column.shift_and_unit if scaled else (0.0, 1.0)
    return [(filling, low, high, shift, unit), *rest[1:]]


def _steps(data: Declaration) -> Floats:
    """Changes to each input: filling, least, most, shift and unit, [5, inputs], or [5, 1] where all are alike."""
    if data.columns is None:
        each = [_AS_IT_IS]
    else:
        scaled = data.scale is None or data.scale.name != "none"
        each = [step for column in data.columns.values() for step in _of_column(column, scaled)]
    steps = np.array(each, np.float64).T
    if isinstance(data.scale, ConstantScale):
        of_all = Column(range=data.scale.range, mean=data.scale.mean, deviation=data.scale.deviation)
        steps[1:] = np.array(_of_column(of_all, True)).T[1:]
    steps[4] *= data.divisor
    return steps


class Exported(nn.Module):
    """From inputs [n, ...] to probabilities [n, classes], scores [n, outputs], or real targets [n], in float64.

    The inputs of a row are what the declared columns say: a number as it is in the table, 1 or 0 for a truth value, and
    for a category a number for each of its texts, 1 for the one that the cell has and 0 for the others. Of data without
    columns they are the features as they are in the file.

    Parameters
    ----------
    model : Model
        Model that is exported.
    """

    filling: Tensor
    low: Tensor
    high: Tensor
    shift: Tensor
    unit: Tensor
    weight: Tensor
    bias: Tensor

    def __init__(self, model: Model) -> None:
        super().__init__()
        data, steps = model.card.data, _steps(model.card.data)
        self.output = model.output
        self.loss: NetworkLoss | None = None
        self._target, self._rank, self._unit_norm = data.target_range, len(data.shape), data.normalise == "unit_norm"
        # A step that does nothing is none, so that graphs are as small as can be.
        self._fills, self._clips = not np.isnan(steps[0]).all(), bool(np.isfinite(steps[1:3]).any())
        self._scales = bool((steps[3] != 0).any() or (steps[4] != 1).any())
        for name, values in zip(("filling", "low", "high", "shift", "unit"), steps, strict=True):
            self.register_buffer(name, torch.tensor(values))
        self.linear, self._counts = model.card.objective.linear, model.card.objective.loss == "poisson"
        if self.linear:
            self.register_buffer("weight", torch.tensor(model["weight"], dtype=torch.float64))
            bias = model["bias"] if "bias" in model else np.zeros(len(model["weight"]))
            self.register_buffer("bias", torch.tensor(bias, dtype=torch.float64))
        else:
            assert isinstance(model.objective, TorchModule)
            network = model.objective.network
            module = copy.deepcopy(network.module)
            module.load_state_dict({name: torch.tensor(array) for name, array in model.items()}, strict=False)
            self.network, self.loss = module.requires_grad_(False).eval(), network.loss

    def forward(self, inputs: Tensor) -> Tensor:
        """Predict for raw ``inputs`` [n, ...]."""
        return self._finished(self._scores(self._features(inputs)))

    def _features(self, inputs: Tensor) -> Tensor:
        """Features as training had them: scaled in float64, and kept in float32."""
        values = inputs.double()
        if self._fills:
            values = torch.where(torch.isnan(values), self.filling, values)
        if self._clips:
            values = torch.minimum(torch.maximum(values, self.low), self.high)
        if self._scales:
            values = (values - self.shift) / self.unit
        if self._unit_norm:
            norms = values.flatten(1).square().sum(1).sqrt().reshape(-1, *[1] * self._rank)
            values = values / torch.where(norms > 0, norms, torch.ones_like(norms))
        return values.float()

    def _scores(self, features: Tensor) -> Tensor:
        if self.linear:
            scores: Tensor = features.flatten(1).double() @ self.weight.T + self.bias
            return scores.exp() if self._counts else scores
        found = scores_of(self.network(features))
        assert self.loss is not None
        scores = self.loss.scores(found).reshape(found.shape[0], -1).double()
        return scores

    def _finished(self, scores: Tensor) -> Tensor:
        if self.output == "prediction":
            shift, unit = (0.0, 1.0) if self._target is None else self._target.shift_and_unit
            if scores.shape[1] > 1:
                return scores
            return scores[:, 0] if self._target is None else scores[:, 0] * unit + shift
        if self.output == "scores":
            return scores
        if scores.shape[1] == 1:
            return torch.cat([torch.sigmoid(-scores), torch.sigmoid(scores)], dim=1)
        return torch.softmax(scores, dim=1)


def torch_file(model: Model) -> bytes:
    """Content of a file with a program of `torch.export`, which `torch.export.load` reads without Gossamer.

    Raises
    ------
    ModelError
        If the network cannot be written as a graph.
    """
    program, file = _program(model, "torch.export"), io.BytesIO()
    with _in_words("torch.export"):
        torch.export.save(program, file, extra_files={"gossamer.json": model.described()})
    return file.getvalue()


def onnx_file(model: Model) -> bytes:
    """Content of a file with an ONNX graph, with the model's description in its metadata.

    Raises
    ------
    ModelError
        If the network cannot be written as a graph.
    """
    import onnx

    program = _program(model, "ONNX")
    with _in_words("ONNX"), _quiet("torch.onnx"):
        made = torch.onnx.export(program, input_names=["inputs"], output_names=[model.output], verbose=False)
        assert made is not None
        proto = made.model_proto
        for part in (proto.graph, *proto.functions):
            for node in part.node:
                del node.metadata_props[:]  # of the exporter: which class and line each came from
        onnx.helper.set_model_props(proto, {METADATA: model.described()})
        content: bytes = proto.SerializeToString()
    return content


def _program(model: Model, what: str) -> Any:
    """The module as a graph, for any number of rows."""
    with _in_words(what):
        program = torch.export.export(Exported(model).eval(), (_example(model),), dynamic_shapes=(_ROWS,))
    for part in program.graph_module.modules():
        for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
            node.meta.pop("stack_trace", None)  # names files of this machine
    return program


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Have a logger say nothing but errors: of packages that are not there, and not needed."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


_ROWS: Any = {0: torch.export.Dim("rows", min=1)}


def _example(model: Model) -> Tensor:
    data = model.card.data
    # Numbers in a table may be large and close to each other; others are float32, as in their files.
    return torch.zeros((2, *data.shape), dtype=torch.float32 if data.columns is None else torch.float64)


@contextmanager
def _in_words(what: str) -> Iterator[None]:
    """Turn what torch says of a module that is no graph into a line; its warnings are of its own inside."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as problem:
        reason = (str(problem).strip() or "no reason given").splitlines()[0][:200]
        raise ModelError(
            f"the network cannot be written for {what} ({type(problem).__name__}: {reason}); torch needs a graph "
            "for any number of rows (x.shape[0] in the place of len(x)); or use gossamer predict"
        ) from problem
