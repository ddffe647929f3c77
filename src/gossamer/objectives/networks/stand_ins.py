"""Layers of torch that ``torch.func`` cannot take one example at a time, as layers that it can.

`nn.GRU`, `nn.LSTM`, `nn.RNN` and their cells are fused kernels, which ``vmap`` cannot go into; `nn.Embedding` takes
whole numbers of an integer type, and features are floating-point numbers. A stand-in is the layer itself, with its
parameters and their names, and another ``forward`` that computes the same. `nn.TransformerEncoder` has a fused kernel
besides, for evaluation alone; it passes by layers that were put in the place of its own, and is switched off.

References
----------
Torch's documentation of `nn.GRU`, `nn.LSTM` and `nn.RNN`, whose equations these are: gates of inputs and states with
biases of both, and in a GRU the reset gate after the product with the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gossamer.errors import DataError, ModelError
from gossamer.objectives.networks.network import removed

State = tuple[Tensor, ...]
"""Of one direction of one layer, each [examples, units]: h, and c of an LSTM."""
Cell = Callable[[Tensor, Tensor, State], State]
"""(gates of the input, gates of the state, state) -> next state."""


def _gru(driven: Tensor, held: Tensor, state: State) -> State:
    reset_in, update_in, new_in = driven.chunk(3, -1)
    reset, update, new = held.chunk(3, -1)
    z = (update_in + update).sigmoid()
    candidate = (new_in + (reset_in + reset).sigmoid() * new).tanh()
    return ((1 - z) * candidate + z * state[0],)


def _lstm(driven: Tensor, held: Tensor, state: State) -> State:
    gate_in, forget, candidate, out = (driven + held).chunk(4, -1)
    cell = forget.sigmoid() * state[1] + gate_in.sigmoid() * candidate.tanh()
    return out.sigmoid() * cell.tanh(), cell


class _Recurrent(nn.RNNBase):
    """Layers of cells over a sequence, forwards and backwards; the arguments are those of torch's own layers."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        """Outputs [..., steps, units], and the last states as torch has them."""
        if not isinstance(input, Tensor):
            raise TypeError("a packed sequence has no batch to take examples from; pad sequences to one length instead")
        single = input.ndim == 2
        steps_first = input[:, None] if single else input.transpose(0, 1) if self.batch_first else input
        given = (hx,) if isinstance(hx, Tensor) else hx
        starts = None if given is None else tuple(each[:, None] if single else each for each in given)
        outputs, states = self._through_layers(steps_first, starts)
        lasts = tuple(torch.stack(each) for each in zip(*states, strict=True))
        if single:
            outputs, lasts = outputs[:, 0], tuple(each[:, 0] for each in lasts)
        elif self.batch_first:
            outputs = outputs.transpose(0, 1)
        return outputs, lasts if self.mode == "LSTM" else lasts[0]

    def _through_layers(self, values: Tensor, starts: State | None) -> tuple[Tensor, list[State]]:
        """Outputs [steps, examples, units] of the last layer, and the last states of all."""
        ends: list[State] = []
        ways = ("", "_reverse") if self.bidirectional else ("",)
        for layer in range(self.num_layers):
            values = F.dropout(values, self.dropout, self.training and layer > 0)
            outputs = []
            for way in ways:
                start = self._start(values, None if starts is None else tuple(each[len(ends)] for each in starts))
                found, end = self._direction(values, f"_l{layer}{way}", start, backwards=bool(way))
                outputs.append(found)
                ends.append(end)
            values = torch.cat(outputs, dim=-1)
        return values, ends

    def _start(self, values: Tensor, given: State | None) -> State:
        if given is not None:
            return given
        zeros = values.new_zeros(values.shape[1], self.proj_size or self.hidden_size)
        return (zeros, values.new_zeros(values.shape[1], self.hidden_size)) if self.mode == "LSTM" else (zeros,)

    def _direction(self, values: Tensor, suffix: str, state: State, *, backwards: bool) -> tuple[Tensor, State]:
        by_input, by_state, input_bias, state_bias, projection = (
            getattr(self, name + suffix, None) for name in _WEIGHTS
        )
        assert by_input is not None  # every layer has both
        assert by_state is not None
        driven = F.linear(values, by_input, input_bias).unbind(0)
        outputs = []
        for each in reversed(driven) if backwards else driven:
            state = _CELLS[self.mode](each, F.linear(state[0], by_state, state_bias), state)
            if projection is not None:
                state = (F.linear(state[0], projection), *state[1:])
            outputs.append(state[0])
        return torch.stack(outputs[::-1] if backwards else outputs), state


_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
_CELLS: dict[str, Cell] = {
    "GRU": _gru,
    "LSTM": _lstm,
    "RNN_TANH": lambda driven, held, state: ((driven + held).tanh(),),
    "RNN_RELU": lambda driven, held, state: ((driven + held).relu(),),
}


class Gru(_Recurrent, nn.GRU):
    """A `nn.GRU`."""


class Lstm(_Recurrent, nn.LSTM):
    """A `nn.LSTM`."""


class Rnn(_Recurrent, nn.RNN):
    """A `nn.RNN`."""


class _OneStep(nn.RNNCellBase):
    """A step of a sequence, in code of one's own; the arguments are those of torch's own cells."""

    mode: str

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """The next state [..., units], a pair of an LSTM."""
        state = self._start(input) if hx is None else (hx,) if isinstance(hx, Tensor) else tuple(hx)
        driven = F.linear(input, self.weight_ih, self.bias_ih)
        found = _CELLS[self.mode](driven, F.linear(state[0], self.weight_hh, self.bias_hh), state)
        return found if self.mode == "LSTM" else found[0]

    def _start(self, values: Tensor) -> State:
        zeros = values.new_zeros(*values.shape[:-1], self.hidden_size)
        return (zeros, zeros) if self.mode == "LSTM" else (zeros,)


class GruCell(_OneStep, nn.GRUCell):
    """A `nn.GRUCell`."""

    mode = "GRU"


class LstmCell(_OneStep, nn.LSTMCell):
    """A `nn.LSTMCell`."""

    mode = "LSTM"


class RnnCell(_OneStep, nn.RNNCell):
    """A `nn.RNNCell`."""

    @property
    def mode(self) -> str:  # type: ignore[override]
        """Name of its cell."""
        return f"RNN_{self.nonlinearity.upper()}"


class Embedding(nn.Embedding):
    """A `nn.Embedding` that takes whole numbers of any type; what lies outside of its rows counts as the nearest row.

    `check_embedded` refuses data that do.
    """

    def forward(self, input: Tensor) -> Tensor:
        """The rows that the numbers name, [..., units]."""
        return F.embedding(_rows(input, self.num_embeddings), self.weight, self.padding_idx)


class EmbeddingBag(nn.EmbeddingBag):
    """A `nn.EmbeddingBag` that takes numbers as `Embedding` does."""

    def forward(self, input: Tensor, offsets: Any = None, per_sample_weights: Any = None) -> Tensor:
        """Sums, means or maxima of the rows that the numbers name, [bags, units]."""
        return super().forward(_rows(input, self.num_embeddings), offsets, per_sample_weights)


def _rows(numbers: Tensor, count: int) -> Tensor:
    return (numbers.round().long() if numbers.is_floating_point() else numbers).clamp(0, count - 1)


_STAND_INS: dict[type[nn.Module], type[nn.Module]] = {
    nn.GRU: Gru,
    nn.LSTM: Lstm,
    nn.RNN: Rnn,
    nn.GRUCell: GruCell,
    nn.LSTMCell: LstmCell,
    nn.RNNCell: RnnCell,
    nn.Embedding: Embedding,
    nn.EmbeddingBag: EmbeddingBag,
}
"""Of layers exactly of these types: a subclass may compute something else."""


def with_stand_ins(module: nn.Module) -> nn.Module:
    """Change the layers inside ``module`` that have a stand-in.

    Raises
    ------
    ModelError
        If an embedding changes itself, or scales gradients by what else is in a batch.
    """
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
            _check_embedding(name, layer)
        if isinstance(layer, nn.TransformerEncoder):
            layer.use_nested_tensor = False
        if isinstance(layer, nn.TransformerEncoderLayer):
            layer.activation_relu_or_gelu = 0
        if (kind := _STAND_INS.get(type(layer))) is not None:
            layer.__class__ = kind
    return module


_BY_FREQUENCY = "scale_grad_by_freq, which mixes the examples of a batch"


def _check_embedding(name: str, layer: nn.Embedding | nn.EmbeddingBag) -> None:
    where, changes = f"layer {name or 'itself'!r} ({type(layer).__name__})", layer.max_norm is not None
    if changes or layer.scale_grad_by_freq:
        what = "max_norm, with which it changes its own weights while it runs" if changes else _BY_FREQUENCY
        raise ModelError(f"{where} has {what}; leave {what.partition(',')[0]} out")


def embeddings(module: nn.Module) -> dict[str, Embedding | EmbeddingBag]:
    """The embeddings inside, by name."""
    return {name: layer for name, layer in module.named_modules() if isinstance(layer, Embedding | EmbeddingBag)}


def check_embedded(module: nn.Module, outputs: Iterator[Tensor]) -> None:
    """Refuse examples that an embedding of ``module`` has no row for; ``outputs`` are what it returns for them.

    Parameters
    ----------
    module : nn.Module
        Used by nobody else; hooks are in it while this runs.
    outputs : iterator of Tensor
        Calls the module whenever it is asked for the next.

    Raises
    ------
    DataError
        For the first batch with such an example. It says nothing of the numbers in it.
    """
    found = embeddings(module).items()
    with removed(layer.register_forward_pre_hook(_refusing(name, layer)) for name, layer in found):
        for _ in outputs:
            pass


def _refusing(name: str, layer: Embedding | EmbeddingBag) -> Callable[[nn.Module, tuple[Any, ...]], None]:
    def refuse(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        rows = inputs[0]
        known = (
            (rows >= 0) & (rows < layer.num_embeddings) & (rows == rows.round() if rows.is_floating_point() else True)
        )
        if not bool(known.all()):
            raise DataError(
                f"layer {name or 'itself'!r} ({type(layer).__name__}) has rows 0 to {layer.num_embeddings - 1}, found "
                "other numbers among the features it is given; number categories from 0, leave them unscaled, or give "
                "it more rows"
            )

    return refuse
