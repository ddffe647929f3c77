"""A model with all its arithmetic as one PyTorch module, from raw numbers to probabilities; and as a graph in files."""

from __future__ import annotations

import copy
import io
import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import gossamer.objectives.networks.torch_extra  # noqa: F401  (says how to install torch where it is missing)

# isort: split
import torch
from torch import Tensor, nn

from gossamer.data.columns import Column
from gossamer.data.declaration import Declaration
from gossamer.errors import ModelError
from gossamer.objectives.networks.module import TorchModule
from gossamer.objectives.networks.network import NetworkLoss, scores_of
from gossamer.trained.card import METADATA
from gossamer.trained.model import Model

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Arithmetic:
    """Steps from inputs to features, in this order; each array is [inputs], or [1] where all are alike.

    The inputs of a row are what the declared columns say: a number as it is in the table, 1 or 0 for a truth value, and
    for a category a number for each of its texts, 1 for the one that the cell has and 0 for the others. Of data without
    columns they are the features as they are in the file.

    Attributes
    ----------
    filling : ndarray
        Read in the place of NaN; NaN itself where nothing is.
    low, high : ndarray
        Bounds that lower and higher inputs are taken for.
    shift, unit : ndarray
        Numbers that are taken off an input, and that the rest is divided by.
    unit_norm : bool
        Whether each row is then divided by its L2 norm, unless that is zero.
    shape : tuple of int
        Shape of an example; inputs have it, too.
    columns : bool
        Whether inputs come from a table: float64, since such numbers may be large and close to each other. Others are
        float32, as in their files.
    """

    filling: Floats
    low: Floats
    high: Floats
    shift: Floats
    unit: Floats
    unit_norm: bool
    shape: tuple[int, ...]
    columns: bool

    @classmethod
    def of(cls, data: Declaration) -> Arithmetic:
        """Steps that a declaration asks for."""
        if data.columns is not None:
            scaled = data.scale is None or data.scale.name != "none"
            each = [step for column in data.columns.values() for step in _of_column(column, scaled)]
        else:
            each = [(math.nan, -math.inf, math.inf, 0.0, 1.0)]
        filling, low, high, shift, unit = np.array(each, np.float64).T
        constant = data.scale if data.scale is not None and data.scale.name == "constant" else None
        if constant is not None:
            of_all = Column(range=constant.range, mean=constant.mean, deviation=constant.deviation)
            ((_, least, most, off, by),) = _of_column(of_all, True)
            low, high = np.full_like(low, least), np.full_like(high, most)
            shift, unit = np.full_like(shift, off), np.full_like(unit, by)
        elif data.divisor != 1:
            unit = unit * data.divisor
        norm = data.normalise == "unit_norm"
        return cls(filling, low, high, shift, unit, norm, data.shape, data.columns is not None)

    @property
    def clips(self) -> bool:
        """Whether some input is bounded."""
        return bool(np.isfinite([self.low, self.high]).any())

    @property
    def fills(self) -> bool:
        """Whether NaN is read as something else somewhere."""
        return bool((~np.isnan(self.filling)).any())

    @property
    def scales(self) -> bool:
        """Whether inputs are moved or divided."""
        return bool((self.shift != 0).any() or (self.unit != 1).any())


def _of_column(column: Column, scaled: bool) -> Iterator[tuple[float, float, float, float, float]]:
    """Filling, least, most, shift and unit of each input of a column."""
    if column.categories is not None:
        yield from [(math.nan, -math.inf, math.inf, 0.0, 1.0)] * len(column.categories)
        return
    filling = math.nan if column.missing is None else float(column.missing)
    low, high = column.range if scaled and column.range is not None else (-math.inf, math.inf)
    shift, unit = column.shift_and_unit if scaled else (0.0, 1.0)
    yield filling, low, high, shift, unit


class Exported(nn.Module):
    """From inputs [n, ...] to probabilities [n, classes], scores [n, outputs], or real targets [n], in float64.

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
        steps = self._steps = Arithmetic.of(model.card.data)
        self.output = model.output
        self._target = model.card.data.target_range
        for name in ("filling", "low", "high", "shift", "unit"):
            self.register_buffer(name, torch.tensor(getattr(steps, name)))
        self.linear = model.card.objective.linear
        self.loss: NetworkLoss | None = None
        if self.linear:
            self.register_buffer("weight", torch.tensor(model["weight"], dtype=torch.float64))
            bias = model["bias"] if "bias" in model else np.zeros(len(model["weight"]))
            self.register_buffer("bias", torch.tensor(bias, dtype=torch.float64))
        else:
            self.network = trained_network(model)
            self.loss = loss_in(model)

    def forward(self, inputs: Tensor) -> Tensor:
        """Predict for raw ``inputs`` [n, ...]."""
        return self._finished(self._scores(self._features(inputs)))

    def _features(self, inputs: Tensor) -> Tensor:
        """Features as training had them: scaled in float64, and kept in float32."""
        steps, values = self._steps, inputs.double()
        if steps.fills:
            values = torch.where(torch.isnan(values), self.filling, values)
        if steps.clips:
            values = torch.minimum(torch.maximum(values, self.low), self.high)
        if steps.scales:
            values = (values - self.shift) / self.unit
        if steps.unit_norm:
            norms = values.flatten(1).square().sum(1).sqrt().reshape(-1, *[1] * len(steps.shape))
            values = values / torch.where(norms > 0, norms, torch.ones_like(norms))
        return values.float()

    def _scores(self, features: Tensor) -> Tensor:
        if self.linear:
            return features.flatten(1).double() @ self.weight.T + self.bias
        found = scores_of(self.network(features))
        assert self.loss is not None
        scores: Tensor = self.loss.scores(found).reshape(found.shape[0], -1).double()
        return scores

    def _finished(self, scores: Tensor) -> Tensor:
        if self.output == "prediction":
            return scores[:, 0] if self._target is None else self._own(scores[:, 0])
        if self.output == "scores":
            return scores
        if scores.shape[1] == 1:
            return torch.cat([torch.sigmoid(-scores), torch.sigmoid(scores)], dim=1)
        return torch.softmax(scores, dim=1)

    def _own(self, predictions: Tensor) -> Tensor:
        """Predictions in the target's own unit."""
        assert self._target is not None
        shift, unit = self._target.shift_and_unit
        return predictions * unit + shift


def trained_network(model: Model) -> nn.Module:
    """The module of a network, with the model's parameters in it."""
    assert isinstance(model.objective, TorchModule)
    module = copy.deepcopy(model.objective.network.module)
    module.load_state_dict({name: torch.tensor(array) for name, array in model.items()}, strict=False)
    return module.requires_grad_(False).eval()


def loss_in(model: Model) -> NetworkLoss:
    """The loss of a network, which says what its outputs mean."""
    assert isinstance(model.objective, TorchModule)
    return model.objective.network.loss


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
    steps = Arithmetic.of(model.card.data)
    return torch.zeros((2, *steps.shape), dtype=torch.float64 if steps.columns else torch.float32)


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
