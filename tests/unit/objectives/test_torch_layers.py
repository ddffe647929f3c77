"""Per-example gradients of single layers, held stored or factored."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gossamer.objectives.networks.layers import RULES, Factored, LayerCall, StoredGradients, handles, is_factored


def factors(positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(4, 2, positions, 3, dtype=torch.float64, generator=generator)
    gradients = torch.randn(4, 2, positions, 5, dtype=torch.float64, generator=generator)
    return inputs, gradients


def weighted_sum(held: StoredGradients | Factored, weights: torch.Tensor) -> torch.Tensor:
    gradients = held.gradients
    inputs = held.inputs.shape[-1] if isinstance(held, Factored) else 1
    total = weights.new_zeros(gradients[0].numel() // (gradients.shape[2] if inputs > 1 else 1) * inputs)
    held.add_weighted(weights.numpy(), total.numpy())
    return total


def square_norms(held: StoredGradients | Factored) -> torch.Tensor:
    total = torch.zeros(len(held.gradients), dtype=torch.float64)
    held.add_squares(total)
    return total


@pytest.mark.parametrize("positions", [1, 4])
def test_factored_is_what_it_stands_for(positions: int) -> None:
    """Norms and weighted sums are those of the products, formed one by one."""
    inputs, gradients = factors(positions)
    formed = torch.stack(
        [
            torch.stack([sum(torch.outer(g[t], a[t]) for t in range(positions)) for a, g in zip(*groups)])
            for groups in zip(inputs, gradients)
        ]
    )
    weights = torch.tensor([0.5, 0.0, 2.0, 1.0], dtype=torch.float64)
    for held in (Factored(inputs, gradients), StoredGradients(formed)):
        assert torch.allclose(square_norms(held), formed.flatten(1).square().sum(1), rtol=1e-12)
        assert torch.allclose(weighted_sum(held, weights), (weights @ formed.flatten(1)), rtol=1e-12)


def test_norms_hold_squares_that_leave_the_type_of_gradients() -> None:
    """3, 4, 5: as long as every number is one of float32, its norm is found, however large or small."""
    held = StoredGradients(torch.tensor([[3e30, 4e30], [3e-30, 4e-30]]))
    assert torch.allclose(square_norms(held).sqrt(), torch.tensor([5e30, 5e-30], dtype=torch.float64), rtol=1e-6)


@pytest.mark.parametrize("length", [1e6, 1e-6])
@pytest.mark.parametrize("gap", [0.0, 1e-7, 1e-6, 1e-4, 1e-2])
def test_cancelling_factors_never_exceed_the_clip(length: float, gap: float) -> None:
    """Two positions whose products nearly cancel: what remains may be rounding error of the float32 sum.

    Its weight follows from the norm, so a norm taken too small would let the example exceed the clip (here 1).
    """
    generator = torch.Generator().manual_seed(1)
    a = torch.randn(50, 1, 1, 40, generator=generator) * length
    g = torch.randn(50, 1, 1, 30, generator=generator)
    held = Factored(torch.cat((a, a), 2), torch.cat((g, -g * (1 + gap)), 2))
    weights = (1 / square_norms(held).sqrt()).clamp(max=1).float()
    for example in range(50):
        alone = torch.zeros(50)
        alone[example] = weights[example]
        assert weighted_sum(held, alone).double().norm() <= 1.001


def test_cancellation_that_is_not_extreme_leaves_the_norm_exact() -> None:
    inputs, gradients = factors(1)
    held = Factored(torch.cat((inputs, inputs), 2), torch.cat((gradients, -0.999 * gradients), 2))
    expected = square_norms(Factored(inputs, 0.001 * gradients))
    assert torch.allclose(square_norms(held), expected, rtol=1e-9)


def test_the_cheaper_way_is_chosen() -> None:
    """T^2 (in + out) against T in out multiplications: equal at T = in out / (in + out)."""
    assert is_factored(1, 784, 200)
    assert not is_factored(1, 1, 200)
    assert is_factored(16, 512 * 9, 512)  # the last stage of ResNet-18
    assert not is_factored(1024, 64 * 9, 64)  # its first


@pytest.mark.parametrize(
    ("layer", "known"),
    [
        (nn.Linear(2, 2), True),
        (nn.Conv2d(2, 2, 3), True),
        (nn.Conv2d(2, 2, 3, padding="same"), False),
        (nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"), False),
        (nn.ConvTranspose2d(2, 2, 3), False),
        (type("Own", (nn.Linear,), {})(2, 2), False),
        (nn.Embedding(3, 2), False),
    ],
)
def test_which_layers_have_a_rule(layer: nn.Module, known: bool) -> None:
    assert handles(layer) is known


def test_a_partly_frozen_layer_has_no_rule() -> None:
    layer = nn.Linear(2, 2)
    layer.bias.requires_grad_(False)
    assert not handles(layer)


def test_a_group_norm_of_one_position_takes_any_strides() -> None:
    """Strides of channels that come last are those of an array in order, too, where there is one position.

    Torch's loop took one for the other, and read beyond the end. Expected are gradients of each example alone.
    """
    layer, generator = nn.GroupNorm(8, 512).double(), torch.Generator().manual_seed(0)
    rows = torch.randn(2, 2, 512, 1, 1, generator=generator, dtype=torch.float64)
    last = [each.as_strided(each.shape, (512, 1, 512, 512), each.storage_offset()) for each in rows]
    found = RULES[nn.GroupNorm](layer, [LayerCall(*last)])
    for n, (inputs, gradients) in enumerate(zip(*rows, strict=True)):
        layer.zero_grad()
        (layer(inputs[None].clone()) * gradients[None]).sum().backward()
        for name, parameter in layer.named_parameters():
            stored = found[name]
            assert isinstance(stored, StoredGradients)
            assert torch.allclose(stored.gradients[n], parameter.grad)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (1, 7), (3, 2), (2, 1, 3)])
@pytest.mark.parametrize("strides", ["of every other number", "of channels last"])
def test_a_group_norm_takes_arrays_that_are_parts_of_others(shape: tuple[int, ...], strides: str) -> None:
    """As of ``x[..., 0]``, or of pictures whose channels come last. Expected are gradients of each example alone."""
    layer, generator = nn.GroupNorm(2, 6).double(), torch.Generator().manual_seed(0)
    rows = torch.randn(2, 3, 6, *shape, generator=generator, dtype=torch.float64)
    if strides == "of channels last":
        parts = rows.movedim(2, -1).contiguous().movedim(-1, 2)
    else:
        parts = torch.stack([rows, torch.full_like(rows, torch.nan)], -1)[..., 0]
    found = RULES[nn.GroupNorm](layer, [LayerCall(*parts)])
    for n, (inputs, gradients) in enumerate(zip(*rows, strict=True)):
        layer.zero_grad()
        (layer(inputs[None]) * gradients[None]).sum().backward()
        for name, parameter in layer.named_parameters():
            stored = found[name]
            assert isinstance(stored, StoredGradients)
            assert torch.allclose(stored.gradients[n], parameter.grad)
