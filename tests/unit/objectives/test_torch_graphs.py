"""Which code of one's own may see batches: what provably keeps examples apart, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests.reference.torch_slow import clipped_sum
from torch import Tensor, nn
from torch.nn import functional as F

from gossamer.data.examples import Split
from gossamer.objectives.networks.gradients import for_batches
from gossamer.objectives.networks.graphs import ExampleWise
from gossamer.objectives.networks.module import TorchModule
from gossamer.objectives.networks.network import LOSSES, Network, flat_parameters

SEQUENCE, IMAGE = (5, 6), (4, 6, 6)


class Code(nn.Module):
    """Scores of what a function makes of examples that went through a linear layer."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.first = nn.Linear(6, 6)
        self.out = nn.LazyLinear(3)
        self.register_buffer("rows", torch.arange(6.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.function(self.first(x)).flatten(1))


class Block(nn.Module):
    """Attention with heads, written by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.qkv = nn.Linear(6, 18)
        self.out = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        n, t, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(n, t, 3, 2, d // 2).permute(2, 0, 3, 1, 4)
        y = (q @ k.transpose(-1, -2) * (d // 2) ** -0.5).softmax(dim=-1) @ v
        return self.out((x + y.transpose(1, 2).reshape(n, t, d)).mean(1))


class Branches(nn.Module):
    """A residual block, and branches joined channel by channel."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU())
        self.one, self.five = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 5, padding=2)
        self.out = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.body(x) + x)
        x = torch.cat([self.one(x), self.five(F.max_pool2d(x, 3, stride=1, padding=1))], dim=1)
        return self.out(F.adaptive_avg_pool2d(x, 1).flatten(1))


def halves(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=1)
    return torch.stack([first.squeeze(1), second.squeeze(1)], dim=2)


APART: dict[str, Callable[[Tensor], Tensor]] = {
    "entries": lambda x: torch.tanh(x) * 2 - x.sigmoid() / (1 + x.square()),
    "constants": lambda x: x * torch.linspace(0, 1, 6) + torch.ones(1, 5, 6),
    "along": lambda x: F.softmax(x, dim=-1) + x.log_softmax(1),
    "reduced": lambda x: x.mean(1, keepdim=True) + x.sum(dim=-1, keepdim=True),
    "reshaped": lambda x: x.reshape(x.shape[0], -1).view(-1, 30).unflatten(1, (6, 5)),
    "sized": lambda x: x.view(x.size(0), x.size(1) * x.size(2)),
    "moved": lambda x: x.permute(1, 0, 2)[2] + x.transpose(0, 2)[0].transpose(0, 1).sum(1, keepdim=True),
    "indexed": lambda x: x[:, 1:4, None, ::2] + x[..., -1][:, :3, None, None],
    "pieces": lambda x: halves(x[:, :2]),
    "unbound": lambda x: x.unbind(1)[0].unsqueeze(1) + x.select(2, 1).unsqueeze(-1),
    "products": lambda x: (x @ x.mT).matmul(x) @ torch.eye(6),
    "attention": lambda x: F.scaled_dot_product_attention(x, x + 1, x),
    "padded": lambda x: F.pad(x, (1, 0)),
    "in place": lambda x: x.clone().mul_(2),
}

MIXING: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x - x.mean(0) / 9,
    "largest": lambda x: x / x.abs().amax().clamp(min=1e3),
    "all axes": lambda x: x * (1 + x.sum() * 1e-9),
    "softmax": lambda x: x + F.softmax(x, dim=0),
    "how many": lambda x: x / x.shape[0],
    "how many, raised": lambda x: x * (x.shape[0] // 4 + 1),
    "long batches": lambda x: x - x.mean(0) if len(x) > 4 else x,
    "rolled": lambda x: torch.roll(x, 1, 0),
    "turned": lambda x: x.flip(0),
    "reshaped": lambda x: x.reshape(-1, 2, 15)[: x.shape[0]],
    "by chance": lambda x: x.reshape(3, -1)[:, :30] if x.shape[0] == 3 else x,
    "transposed": lambda x: x.transpose(0, 1).reshape(-1, 5, 6),
    "counted": lambda x: x.reshape(x.shape[0], x.shape[0], -1),
    "flattened from there": lambda x: x.reshape(-1, 1, 5, 1, 3, 2).flatten(x.shape[0]).softmax(-1),
    "unflattened there": lambda x: x.reshape(-1, 1, 5, 1, 3, 2).unflatten(x.shape[0], (1, -1)).softmax(4),
    "taken": lambda x: x + x[:1],
    "cut off": lambda x: x[:5],
    "cut far off": lambda x: x[:2000],
    "cut far off from behind": lambda x: x[-2000:],
    "cut into long pieces": lambda x: x.split(2000)[0],
    "cut into one piece": lambda x: x.chunk(1)[0],
    "last ones": lambda x: x[-9:] * 2,
    "squeezed": lambda x: x[:, :1, :1].squeeze().reshape(-1, 1, 1) + x,
    "picked": lambda x: x + x[0],
    "joined": lambda x: torch.cat([x[1:], x[:1]], dim=0),
    "crossed": lambda x: x + (x.flatten(1) @ x.flatten(1).transpose(0, 1)).sum(1)[:, None, None],
    "shifted axes": lambda x: x + x.mean((1, 2)),
    "written out": lambda x: torch.add(x, x, out=torch.empty(0)),
    "sorted": lambda x: x.sort(0).values,
    "random": lambda x: x + torch.rand_like(x),
}


def graph_of(module: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    module = module.eval()
    with torch.no_grad():
        module(torch.zeros(1, *shape))  # lazy layers
    parts, _ = flat_parameters(module)
    return for_batches(Network(module, parts, LOSSES["cross_entropy"]), shape).module


@pytest.mark.parametrize("name", APART)
def test_what_keeps_examples_apart_becomes_a_graph(name: str) -> None:
    """It computes what the module does, of one example as of several."""
    module = Code(APART[name])
    graph = graph_of(module, SEQUENCE)
    assert isinstance(graph, ExampleWise)
    x = torch.randn(7, *SEQUENCE)
    alone = torch.cat([module(each[None]) for each in x])
    assert torch.allclose(graph(x), alone, rtol=1e-5, atol=1e-6)
    assert torch.allclose(graph(x[:1]), alone[:1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", MIXING)
def test_what_may_mix_examples_sees_one_at_a_time(name: str) -> None:
    module = Code(MIXING[name])
    assert graph_of(module, SEQUENCE) is module


@pytest.mark.parametrize(("module", "shape"), [(Block(), SEQUENCE), (Branches(), IMAGE)])
def test_gradients_of_graphs_are_those_of_single_examples(module: nn.Module, shape: tuple[int, ...]) -> None:
    assert isinstance(graph_of(module, shape), ExampleWise)
    generator = np.random.default_rng(0)
    data = Split(generator.standard_normal((9, *shape)).astype(np.float32), generator.integers(0, 3, 9))
    torch_module = TorchModule(module.double())
    model = torch_module.initial(generator)
    found = torch_module.clipped_gradients(model[None], data, [np.arange(9)], 0.1)
    expected = clipped_sum(module, model, data.features, data.targets, 0.1).total
    assert np.allclose(found.sums[0], expected, rtol=1e-10, atol=1e-12)
    assert torch_module.plan(data).strategy == "layers"


def test_a_module_of_two_arguments_and_one_with_unused_layers_stay_as_they_are() -> None:
    class Masked(Block):
        def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
            return super().forward(x if mask is None else x * mask)

    class Unused(Block):
        def __init__(self) -> None:
            super().__init__()
            self.never = nn.Linear(2, 2)

    for module in (Masked(), Unused()):
        assert graph_of(module, SEQUENCE) is module


def test_hooks_of_layers_are_gone_into() -> None:
    module = Block()
    module.qkv.register_forward_hook(lambda _layer, _inputs, output: output - output.mean(0))
    assert graph_of(module, SEQUENCE) is module


class Changed(Block):
    """Parts that are written over, one after the other, which torch permits of choices and not of what is unbound."""

    def forward(self, x: Tensor) -> Tensor:
        whole = self.qkv(self.norm(x.mean(1))).view(x.shape[0], 3, 6).permute(1, 0, 2)
        first, second, third = whole[0], whole[1], whole[2]
        return self.out(first.mul_(2) + second * third)


def test_parts_that_are_taken_together_are_one_call_of_torch() -> None:
    """A choice each makes an array as large as the whole on the way back."""
    graph = graph_of(Block(), SEQUENCE)
    assert isinstance(graph, ExampleWise)
    assert [node.target for node in graph.graph.nodes].count("unbind") == 1
    x = torch.randn(3, *SEQUENCE)
    nodes, seen = [graph(x).grad_fn], []
    while nodes:
        node = nodes.pop()
        seen.append(node.name())
        nodes += [each for each, _ in node.next_functions if each is not None]
    assert "SelectBackward0" not in seen


def test_parts_that_are_changed_have_the_gradients_of_single_examples(capfd: pytest.CaptureFixture[str]) -> None:
    generator = np.random.default_rng(0)
    data = Split(generator.standard_normal((9, *SEQUENCE)).astype(np.float32), generator.integers(0, 3, 9))
    module = Changed().double()
    assert isinstance(graph_of(Changed(), SEQUENCE), ExampleWise)
    torch_module = TorchModule(module)
    model = torch_module.initial(generator)
    found = torch_module.clipped_gradients(model[None], data, [np.arange(9)], 0.1)
    expected = clipped_sum(module, model, data.features, data.targets, 0.1).total
    assert np.allclose(found.sums[0], expected, rtol=1e-10, atol=1e-12)
    assert torch_module.plan(data).strategy == "layers"
    assert capfd.readouterr().err == ""
