"""Low-rank adapters: their gradients, what leaves a party, what the model holds, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

import gossamer as gs
from gossamer.data.datasets import load_dataset
from gossamer.data.examples import Split
from gossamer.experiment.preparation.objective import build_objective
from gossamer.objectives.network_settings import AdapterSettings
from gossamer.objectives.networks.adapters import adapt
from gossamer.objectives.networks.module import TorchModule

RNG = np.random.default_rng(3)
ROWS, STEPS, SIZE = 24, 5, 8
X, Y = RNG.integers(0, 30, (ROWS, STEPS)).astype(np.float32), RNG.integers(0, 3, ROWS)


class Attending(nn.Module):
    """Attention in code of one's own, whose projections adapters name."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, SIZE)
        self.query, self.key, self.value = (nn.Linear(SIZE, SIZE) for _ in range(3))
        self.heads = nn.MultiheadAttention(SIZE, 2, batch_first=True)
        self.out = nn.Linear(SIZE, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x)
        x = x + F.scaled_dot_product_attention(self.query(x), self.key(x), self.value(x))
        return self.out((x + self.heads(x, x, x)[0]).mean(1))


def adapted(seed: int = 0, **settings: object) -> nn.Module:
    torch.manual_seed(seed)
    module = Attending()
    return adapt(module, AdapterSettings.model_validate({"modules": ["query", "value", "out"], **settings}))


def spec(**adapters: object) -> dict[str, object]:
    return {
        "algorithm": {"name": "gossip", "nodes": 2, "batch_size": 4, "topology": "complete"},
        "objective": {"adapters": {"modules": ["query", "value", "out"], "rank": 2, **adapters}},
        "budget": {"epsilon": 5, "delta": 1e-3},
        "stop": {"updates": 4},
        "evaluation": "off",
    }


DATA = gs.Data(X, Y, labels=[0, 1, 2])


@pytest.mark.parametrize("strategy", ["layers", "threads"])
def test_clipped_gradients_are_those_of_vmap(strategy: str) -> None:
    module = adapted(rank=4, alpha=3.0)
    objective = TorchModule(module, strategy=strategy)
    model = RNG.normal(size=objective.size).astype(np.float32)
    found = objective.clipped_gradients(model[None], Split(X, Y), [np.arange(ROWS)], 0.5).sums[0]
    held = {name: torch.tensor(part) for name, part in gs.unpack(model, objective.parts).items()}
    embed = module.embedding.forward
    module.embedding.forward = lambda x: embed(x.long())  # type: ignore[method-assign, operator]

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(module.eval(), parameters, x[None]), y[None])

    each = vmap(grad(loss), (None, 0, 0))(held, torch.tensor(X), torch.tensor(Y))
    rows = torch.cat([each[part.name].flatten(1) for part in objective.parts], 1).double()
    expected = (rows * (0.5 / rows.norm(dim=1)).clamp(max=1)[:, None]).sum(0).numpy()
    assert np.linalg.norm(found - expected) <= 1e-5 * np.linalg.norm(expected)


def test_a_layer_with_an_adapter_computes_what_the_formula_says() -> None:
    """W x + b + (alpha / rank) B A x, by matrices."""
    module = adapted(rank=4, alpha=3.0)
    layer, x = module.get_submodule("out"), torch.randn(7, SIZE, generator=torch.Generator().manual_seed(1))
    b = torch.randn(3, 4, generator=torch.Generator().manual_seed(2))
    layer.up.weight.data = b  # type: ignore[union-attr]
    base, a = layer.base, layer.down.weight  # type: ignore[union-attr]
    assert torch.allclose(layer(x), x @ base.weight.T + base.bias + 3 / 4 * x @ (b @ a).T, atol=1e-6)


def test_only_adapters_are_trained_from_the_layer_alone() -> None:
    torch.manual_seed(0)
    module = Attending()
    result = gs.run({**spec(), "stop": {"updates": 1}, "privacy": "none", "budget": None}, data=DATA, module=module)
    assert {name.rpartition(".")[0] for name in result.model} == {
        f"{layer}.{way}" for layer in ("query", "value", "out") for way in ("down", "up")
    }
    sizes = [2 * SIZE, SIZE * 2, 2 * SIZE, SIZE * 2, 2 * SIZE, 3 * 2]
    assert [array.size for array in result.model.values()] == sizes


def test_what_is_drawn_follows_from_the_seed_and_the_rest_begins_at_zero() -> None:
    objective = TorchModule(adapted())
    one, same, other = (objective.initial(np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    for name, part in gs.unpack(one, objective.parts).items():
        beside = gs.unpack(other, objective.parts)[name]
        assert (part != beside).all() if name.endswith("down.weight") else not part.any() and not beside.any()


def test_a_class_makes_the_same_layers_each_time() -> None:
    """Frozen numbers that a class draws are those of every party, whatever was drawn before."""
    runs = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        runs.append(gs.run({**spec(), "privacy": {"noise_secret": "reproducible"}}, data=DATA, module=Attending))
    assert all(np.array_equal(one, other) for one, other in zip(runs[0].model.values(), runs[1].model.values()))


def test_the_written_model_predicts_as_the_network_with_its_adapters(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Attending().eval()
    gs.run(spec(alpha=5.0), str(tmp_path / "run"), data=DATA, module=module)
    model = gs.load_model(tmp_path / "run", module=module)
    twin = adapted(rank=2, alpha=5.0)
    twin.load_state_dict({name: torch.tensor(part) for name, part in model.items()}, strict=False)
    expected = twin.eval()(torch.tensor(X).long()).softmax(1).detach().numpy()
    assert np.allclose(model.predict(X).probabilities, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["querry"], r"objective\.adapters\.modules: no layer is called 'querry'; did you mean query\?"),
        (["embedding"], r"layer 'embedding' is Embedding, expected Linear; leave it out"),
        (["heads.out_proj"], r"layer 'heads\.out_proj' is NonDynamicallyQuantizableLinear, expected Linear"),
    ],
)
def test_layers_without_adapters_are_named(names: list[str], message: str) -> None:
    with pytest.raises(gs.SpecError, match=message):
        gs.run(spec(modules=names), data=DATA, module=Attending())


def test_a_module_that_is_made_once_is_adapted_anew_each_time_and_stays_as_it_is(tmp_path: Path) -> None:
    """As where a function keeps what it has loaded; an adapter beside an adapter would be another model."""
    kept = Attending()
    for number in range(2):
        gs.run(spec(), str(tmp_path / str(number)), data=DATA, module=lambda: kept)
    gs.load_model(tmp_path / "1", module=lambda: kept)
    assert type(kept.query) is nn.Linear
    assert all(each.requires_grad for each in kept.parameters())


def test_linear_models_have_no_adapters() -> None:
    with pytest.raises(gs.SpecError, match=r"objective\.adapters are for networks, found softmax"):
        gs.run(spec(), data=gs.Data(X, Y, labels=[0, 1, 2]))


def test_the_network_below_adapters_is_the_same_wherever_it_is_made() -> None:
    """Parties of a federation each make their own: what adapters stand beside may not be drawn anew."""
    experiment = gs.Experiment.model_validate(
        {
            "objective": {"name": "mlp", "adapters": {"modules": ["hidden1"]}},
            "dataset": "digits",
            "budget": {"epsilon": 1.0},
        }
    )
    made = [build_objective(experiment, load_dataset(experiment.dataset)).frozen for _ in range(2)]
    assert made[0] == made[1] is not None


def test_a_conv1d_of_transformers_is_a_linear_layer_the_other_way_round() -> None:
    """GPT2 has x W + b with W [inputs, outputs]: a function of x beside which A and B have the sizes of its own."""

    class Conv1D(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.randn(5, 3)), nn.Parameter(torch.randn(3))

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.weight + self.bias

    Conv1D.__module__ = "transformers.pytorch_utils"
    layer, x = Conv1D(), torch.randn(4, 5)
    found = adapt(nn.Sequential(layer), AdapterSettings(rank=2, alpha=6, modules=("0",)))[0]
    torch.nn.init.normal_(found.up.weight)
    expected = x @ (layer.weight + 3 * (found.up.weight @ found.down.weight).T) + layer.bias
    torch.testing.assert_close(found(x), expected)
