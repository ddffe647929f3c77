"""Recurrent layers, embeddings, shared layers and several outputs: gradients are those of each example alone.

The reference is torch's own layers, differentiated one example after the other by an ordinary backward pass.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from gossamer.data.examples import Split  # noqa: E402
from gossamer.errors import DataError, ModelError  # noqa: E402
from gossamer.objectives.networks.module import TorchModule  # noqa: E402
from gossamer.objectives.networks.stand_ins import with_stand_ins  # noqa: E402

CLASSES = 3


class Last(nn.Module):
    """A recurrent layer, and scores of what it puts out at the end."""

    def __init__(self, kind: Any, units: int = 5, **more: Any) -> None:
        super().__init__()
        self.batch_first = more.get("batch_first", True)
        self.layer = kind(4, units, **{"batch_first": True, **more})
        width = (more.get("proj_size") or units) * (2 if more.get("bidirectional") else 1)
        self.scores = nn.Linear(width, CLASSES)

    def forward(self, x: Any) -> Any:
        outputs, _ = self.layer(x if self.batch_first else x.transpose(0, 1))
        return self.scores(outputs[:, -1] if self.batch_first else outputs[-1])


class States(nn.Module):
    """Scores of the last states, from first states that are trained."""

    def __init__(self, kind: Any, *, pair: bool = False) -> None:
        super().__init__()
        self.layer = kind(4, 5, batch_first=True, num_layers=2)
        self.start = nn.Parameter(torch.randn(2, 1, 5) * 0.1)
        self.pair = pair
        self.scores = nn.Linear(10 if pair else 5, CLASSES)

    def forward(self, x: Any) -> Any:
        start = self.start.expand(-1, len(x), -1).contiguous()
        _, last = self.layer(x, (start, start) if self.pair else start)
        return self.scores(torch.cat((last[0][-1], last[1][-1]), -1) if self.pair else last[-1])


class Embedded(nn.Module):
    def __init__(self, *, cast: bool = False, **more: Any) -> None:
        super().__init__()
        self.rows = nn.Embedding(10, 5, **more)
        self.scores = nn.Linear(6 * 4 * 5, CLASSES)
        self.cast = cast

    def forward(self, x: Any) -> Any:
        return self.scores(self.rows(x.long() if self.cast else x).flatten(1))


class Bags(nn.Module):
    def __init__(self, mode: str, *, cast: bool = True) -> None:
        super().__init__()
        self.rows = nn.EmbeddingBag(10, 5, mode=mode, padding_idx=0)
        self.scores = nn.Linear(5, CLASSES)
        self.cast = cast

    def forward(self, x: Any) -> Any:
        return self.scores(self.rows(x.flatten(1).long() if self.cast else x.flatten(1)))


class Attention(nn.Module):
    """Words that are read together, some of which are padding, with a layer that was put in the place of torch's."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(10, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        layer.linear1 = Adapted(layer.linear1)
        self.encoder = nn.TransformerEncoder(layer, 1)
        self.scores = nn.Linear(8, CLASSES)

    def forward(self, x: Any) -> Any:
        words = x.flatten(1).long()
        words = torch.cat([words, torch.zeros_like(words[:, :2])], 1)
        return self.scores(self.encoder(self.rows(words), src_key_padding_mask=words == 0).mean(1))


class Adapted(nn.Module):
    """A frozen layer and an adapter beside it, which also answers for the layer's weight."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.adapter = nn.Linear(base.in_features, base.out_features)
        self.weight, self.bias = base.weight, base.bias

    def forward(self, x: Any) -> Any:
        return self.base(x) + self.adapter(x)


class TiedWeight(nn.Module):
    """An embedding and a layer with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(10, 10)
        self.back = nn.Linear(10, 10, bias=False)
        self.back.weight = self.rows.weight
        self.scores = nn.Linear(10, CLASSES)

    def forward(self, x: Any) -> Any:
        return self.scores(self.back(self.rows(x).mean((1, 2))).tanh())


class TiedLayer(nn.Module):
    """One layer under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = self.first
        self.scores = nn.Linear(4, CLASSES)

    def forward(self, x: Any) -> Any:
        return self.scores(self.second(self.first(x.mean(1)).tanh()).tanh())


class Several(nn.Module):
    def __init__(self, several: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.scores = nn.Linear(4, CLASSES)
        self.several = several

    def forward(self, x: Any) -> Any:
        return self.several(self.scores(x.mean(1)), x)


class CellByHand(nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.cell = kind(4, 5)
        self.scores = nn.Linear(5, CLASSES)

    def forward(self, x: Any) -> Any:
        state = None
        for each in x.unbind(1):
            state = self.cell(each, state)
        return self.scores(state[0] if isinstance(state, tuple) else state)


shared = nn.Linear(4, 4)
NUMBERS: dict[str, Callable[[], nn.Module]] = {
    "gru": lambda: Last(nn.GRU),
    "gru, both ways, 2 layers": lambda: Last(nn.GRU, num_layers=2, bidirectional=True),
    "gru without biases": lambda: Last(nn.GRU, bias=False),
    "gru, steps first": lambda: Last(nn.GRU, batch_first=False),
    "gru, states": lambda: States(nn.GRU),
    "lstm": lambda: Last(nn.LSTM),
    "lstm, both ways, 2 layers": lambda: Last(nn.LSTM, num_layers=2, bidirectional=True),
    "lstm, projected": lambda: Last(nn.LSTM, proj_size=2, bidirectional=True),
    "lstm, states": lambda: States(nn.LSTM, pair=True),
    "rnn": lambda: Last(nn.RNN),
    "rnn, relu": lambda: Last(nn.RNN, nonlinearity="relu", num_layers=2),
    "gru cell": lambda: CellByHand(nn.GRUCell),
    "lstm cell": lambda: CellByHand(nn.LSTMCell),
    "rnn cell": lambda: CellByHand(nn.RNNCell),
    "tied layer": TiedLayer,
    "tied layers in a sequence": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(24, 4), nn.Tanh(), shared, nn.Tanh(), shared, nn.Tanh(), nn.Linear(4, CLASSES)
    ),
    "logits of a mapping": lambda: Several(lambda scores, x: {"hidden": x, "logits": scores}),
    "scores of a mapping": lambda: Several(lambda scores, x: {"hidden": x, "scores": scores}),
    "only entry of a mapping": lambda: Several(lambda scores, x: {"anything": scores}),
    "first of a tuple": lambda: Several(lambda scores, x: (scores, x)),
    "list": lambda: Several(lambda scores, x: [scores]),
}
ROWS: dict[str, Callable[[], nn.Module]] = {
    "embedding": Embedded,
    "embedding, cast": lambda: Embedded(cast=True),
    "embedding, padding": lambda: Embedded(padding_idx=0),
    "embedding, sparse": lambda: Embedded(sparse=True),
    "embedding in a sequence": lambda: nn.Sequential(nn.Embedding(10, 5), nn.Flatten(), nn.Linear(120, CLASSES)),
    "tied weight": TiedWeight,
    "bags, means": lambda: Bags("mean"),
    "bags, sums": lambda: Bags("sum"),
    "bags, maxima": lambda: Bags("max"),
}


def features(rows: bool, count: int = 7) -> npt.NDArray[Any]:
    generator = np.random.default_rng(3)
    found = generator.integers(0, 10, (count, 6, 4)) if rows else generator.standard_normal((count, 6, 4))
    return found.astype(np.float32)


def reference(module: nn.Module, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> list[npt.NDArray[np.float64]]:
    """The gradient of each example by itself, by torch's own layers."""
    found = []
    integers = any(isinstance(layer, nn.Embedding) for layer in module.modules())
    for one in range(len(x)):
        module.zero_grad()
        given = torch.tensor(x[[one]])
        outputs = module(given.long() if integers else given.double())
        outputs = outputs if isinstance(outputs, torch.Tensor) else scores_in(outputs)
        nn.functional.cross_entropy(outputs, torch.tensor(y[[one]])).backward()
        grads = [p.grad.to_dense() if p.grad.is_sparse else p.grad for p in module.parameters()]
        found.append(np.concatenate([grad.numpy().ravel() for grad in grads]))
    return found


def scores_in(outputs: Any) -> Any:
    if isinstance(outputs, dict):
        return next(value for value in outputs.values() if value.shape[-1] == CLASSES and value.ndim == 2)
    return outputs[0]


@pytest.mark.parametrize("case", [*NUMBERS, *ROWS])
def test_gradients_are_those_of_each_example_alone(case: str) -> None:
    torch.manual_seed(0)
    module = ({**NUMBERS, **ROWS}[case])().double()
    x, y = features(case in ROWS), np.array([0, 1, 2, 0, 1, 2, 0])
    alone = reference(copy.deepcopy(module), x, y)
    objective = TorchModule(module, pretrained=True)
    model = objective.initial(np.random.default_rng(0))
    names = [part.name for part in objective.parts]
    assert names == [name for name, _ in module.named_parameters()]
    clip = float(np.median([np.linalg.norm(gradient) for gradient in alone]))
    expected = sum(gradient * min(1.0, clip / np.linalg.norm(gradient)) for gradient in alone)
    for limit, total in ((np.inf, sum(alone)), (clip, expected)):
        found = objective.clipped_gradients(model[None], Split(x, y), [np.arange(7)], limit)
        assert found.zeroed.tolist() == [0]
        np.testing.assert_allclose(found.sums[0], total, atol=1e-6 * float(np.linalg.norm(total)), rtol=0)


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
def test_a_stand_in_puts_out_the_same(kind: Any) -> None:
    torch.manual_seed(1)
    layer = kind(4, 5, num_layers=2, bidirectional=True)
    other = with_stand_ins(copy.deepcopy(layer))
    assert list(layer.state_dict()) == list(other.state_dict())
    for x in (torch.randn(6, 3, 4), torch.randn(6, 4)):
        torch.testing.assert_close(layer(x), other(x))


def test_the_module_that_was_given_keeps_its_layers() -> None:
    module = Last(nn.GRU)
    TorchModule(module)
    assert type(module.layer) is nn.GRU


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "max_norm": (lambda: Embedded(max_norm=1.0), r"layer 'rows' \(Embedding\) has max_norm.*leave max_norm out"),
    "by frequency": (lambda: Embedded(scale_grad_by_freq=True), r"scale_grad_by_freq, which mixes the examples"),
    "unknown keys": (
        lambda: Several(lambda scores, x: {"foo": scores, "bar": x}),
        r"found a mapping with the keys foo, bar and none that is 'logits' or 'scores'",
    ),
    "a sequence of scores": (lambda: nn.Sequential(nn.LSTM(4, 3, batch_first=True)), r"found shape \[1, 6, 3\]"),
    "a text": (lambda: Several(lambda scores, x: "scores"), r"found str for one example"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_trained_is_named_in_a_line(case: str) -> None:
    make, said = REFUSED[case]
    with pytest.raises(ModelError, match=said) as caught:
        TorchModule(make()).plan(Split(features(rows=False), np.zeros(7, np.int64)))
    assert "\n" not in str(caught.value)


def test_layers_in_the_place_of_an_encoders_own_count_in_evaluation_too() -> None:
    """Torch's fused kernel, for evaluation alone, takes weights past the layers that have them."""
    torch.manual_seed(0)
    x, y = features(rows=True), np.zeros(7, np.int64)
    module = Attention()
    objective = TorchModule(module, pretrained=True)
    model = objective.initial(np.random.default_rng(0))
    expected = nn.functional.cross_entropy(module(torch.tensor(x)), torch.tensor(y), reduction="none")
    found = objective.losses(model[None], Split(x, y))[0]
    np.testing.assert_allclose(found, expected.detach().numpy(), rtol=1e-5)


@pytest.mark.parametrize("wrong", [-1.0, 10.0, 2.5])
def test_numbers_without_a_row_are_refused_and_not_shown(wrong: float) -> None:
    x = features(rows=True)
    x[5, 2, 1] = wrong
    objective = TorchModule(Embedded())
    with pytest.raises(DataError, match=r"layer 'rows' \(Embedding\) has rows 0 to 9, found other numbers") as caught:
        objective.plan(Split(x, np.zeros(7, np.int64)))
    assert f"{wrong:g}," not in str(caught.value)
    assert not any(layer._forward_pre_hooks for layer in objective._network.module.modules())


def test_a_dropout_between_recurrent_layers_is_said_to_be_off() -> None:
    with pytest.warns(UserWarning, match="dropout is switched off"):
        TorchModule(Last(nn.GRU, num_layers=2, dropout=0.5)).plan(Split(features(rows=False), np.zeros(7, np.int64)))
