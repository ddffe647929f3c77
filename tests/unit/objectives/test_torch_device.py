"""Sums on a device: those of the usual way, whatever is computed at once, and one line where a device does not do."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from gossamer.data.examples import Split  # noqa: E402
from gossamer.errors import ModelError, SpecError  # noqa: E402
from gossamer.objectives.device.device import Device, device_of  # noqa: E402
from gossamer.objectives.device.network import DeviceLimits, DeviceNetwork, chunks  # noqa: E402
from gossamer.objectives.models import MODELS, build_model  # noqa: E402
from gossamer.objectives.networks.module import TorchModule  # noqa: E402
from gossamer.objectives.objective import (  # noqa: E402
    NoisyObjective,
    Normals,
    Objective,
)

CPU = Device("cpu", 2**29)
LENGTHS = (20, 0, 7, 20, 1, 13)
SHAPES = {"cnn_mapa": (1, 28, 28), "lenet5": (1, 28, 28), "mlp": (1, 8, 8)}
LARGE = sorted(MODELS.keys() - {*SHAPES, "lstm"})


def split(shape: tuple[int, ...], classes: int | None, count: int = 40) -> Split:
    generator = np.random.default_rng(1)
    targets = generator.integers(0, classes, count) if classes else generator.standard_normal(count)
    return Split(generator.standard_normal((count, *shape), dtype=np.float32), targets)


def asked(objective: Objective, data: Split, lengths: tuple[int, ...] = LENGTHS) -> tuple[Any, ...]:
    """Different models, batches and clips."""
    generator = np.random.default_rng(2)
    models = np.stack([objective.initial(np.random.default_rng(node)) for node in range(len(lengths))])
    models += 0.05 * generator.standard_normal(models.shape).astype(models.dtype)
    batches = [generator.choice(len(data), length, replace=False) for length in lengths]
    return models, data, batches, np.linspace(0.05, 2, len(lengths))


def small() -> tuple[TorchModule, DeviceNetwork]:
    module = torch.nn.Sequential(torch.nn.Linear(12, 3))
    return TorchModule(module, strategy="layers"), DeviceNetwork(CPU, module)


@pytest.mark.parametrize("name", SHAPES)
def test_sums_of_networks_are_the_usual_ones(name: str) -> None:
    data, module = split(SHAPES[name], 10), build_model(name, SHAPES[name], 10)
    usual, device = TorchModule(module, strategy="layers"), DeviceNetwork(CPU, module)
    given = asked(usual, data)
    expected, found = usual.clipped_gradients(*given), device.clipped_gradients(*given)
    np.testing.assert_allclose(found.sums, expected.sums, atol=1e-5)
    assert found.unclipped.tolist() == expected.unclipped.tolist()
    assert device.computing().strategy == "stacked layers"
    scores = device.evaluate(given[0][:2], data), usual.evaluate(given[0][:2], data)
    np.testing.assert_allclose(scores[0].loss, scores[1].loss, atol=1e-6)
    assert scores[0].accuracy.tolist() == scores[1].accuracy.tolist()


@pytest.mark.parametrize("lengths", [(5,), (5, 3)])
def test_sums_of_normalised_layers_are_the_usual_ones(lengths: tuple[int, ...]) -> None:
    """Of one node as well, whose pass keeps the means and deviations that torch has found."""
    seen = (torch.nn.Conv2d(1, 4, 3), torch.nn.GroupNorm(2, 4), torch.nn.LayerNorm((6, 6)), torch.nn.Flatten())
    data, module = split((1, 8, 8), 3), torch.nn.Sequential(*seen, torch.nn.Linear(144, 3))
    usual, device = TorchModule(module, strategy="layers"), DeviceNetwork(CPU, module)
    given = asked(usual, data, lengths)
    np.testing.assert_allclose(device.clipped_gradients(*given).sums, usual.clipped_gradients(*given).sums, atol=1e-5)


@pytest.mark.slow
@pytest.mark.some(4)
@pytest.mark.parametrize("name", LARGE)
def test_sums_of_large_networks_in_small_pieces(name: str) -> None:
    """In float64, where no rounding turns a unit on or off; five examples of two nodes, and one at a time."""
    data, module = split((3, 32, 32), 10, 8), build_model(name, (3, 32, 32), 10).double()
    usual, device = TorchModule(module, strategy="layers"), DeviceNetwork(CPU, module)
    pieces = DeviceNetwork(Device("cpu", 2**20), module)
    given = asked(usual, data, (3, 2))
    expected = usual.clipped_gradients(*given)
    for each in (device, pieces):
        found = each.clipped_gradients(*given)
        np.testing.assert_allclose(found.sums, expected.sums, atol=1e-6 * float(np.abs(expected.sums).max()))


class Mixed(torch.nn.Module):
    """Code of one's own, which may see no batch of several examples; without rules for its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3, 12, generator=torch.Generator().manual_seed(0)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("nf,cf->nc", x, self.weight.sin())


@pytest.mark.parametrize("memory", [2**29, 2**12])
def test_sums_of_a_module_without_rules(memory: int) -> None:
    data = split((12,), 3)
    usual, device = TorchModule(Mixed()), DeviceNetwork(Device("cpu", memory), Mixed(), memory_mib=1)
    given = asked(usual, data)
    np.testing.assert_allclose(device.clipped_gradients(*given).sums, usual.clipped_gradients(*given).sums, atol=1e-5)
    assert device.computing().strategy == "stacked examples"


class Sequence(torch.nn.Module):
    """A small LSTM over frames."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.out = torch.nn.LSTM(4, 5, num_layers=2, bidirectional=True), torch.nn.Linear(10, 3)
        self.lstm.batch_first = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.lstm(x)[0][:, -1])


def test_sums_of_an_lstm_in_pieces() -> None:
    data, module = split((6, 4), 3), Sequence()
    usual = TorchModule(module)
    given = asked(usual, data)
    expected = usual.clipped_gradients(*given).sums
    for memory in (2**29, 2**15):
        found = DeviceNetwork(Device("cpu", memory), module, memory_mib=1).clipped_gradients(*given).sums
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("memory", [2**19, 2**16, 1])
def test_memory_changes_the_last_digits_alone(memory: int) -> None:
    data, module = split((1, 28, 28), 10), build_model("cnn_mapa", (1, 28, 28), 10)
    whole, pieces = DeviceNetwork(CPU, module), DeviceNetwork(Device("cpu", memory), module)
    given = asked(whole, data)
    np.testing.assert_allclose(pieces.clipped_gradients(*given).sums, whole.clipped_gradients(*given).sums, atol=1e-5)


def test_what_is_not_finite_counts_as_zero() -> None:
    """An example of NaN adds nothing and is counted; a model of NaN has no gradient at all."""
    data = split((1, 8, 8), 10)
    np.asarray(data.features)[3] = np.nan
    module = build_model("mlp", (1, 8, 8), 10)
    usual, device = TorchModule(module, strategy="layers"), DeviceNetwork(CPU, module)
    models, _, _, clips = asked(usual, data, (3, 3, 2))
    models[2, 5] = np.nan
    batches = [np.array([0, 3, 4]), np.array([5, 6, 7]), np.array([0, 1])]
    expected = usual.clipped_gradients(models, data, batches, clips)
    found = device.clipped_gradients(models, data, batches, clips)
    np.testing.assert_allclose(found.sums, expected.sums, atol=1e-5)
    assert found.zeroed.tolist() == expected.zeroed.tolist() == [1, 0, 2]


def test_noise_is_added_once_and_to_whom_it_is_due() -> None:
    from gossamer.normals import fill

    usual, device = small()
    assert isinstance(device, NoisyObjective)
    assert not isinstance(usual, NoisyObjective)
    given = asked(usual, split((12,), 3))
    keys = np.random.default_rng(3).integers(0, 2**64, (len(LENGTHS), 2), dtype=np.uint64)
    deviations = np.array([0.5, 2, 0, 1, 1, 3])
    plain, noisy = device.clipped_gradients(*given), device.noisy_gradients(*given, Normals(keys, deviations))
    for row, deviation in enumerate(deviations):
        expected = np.zeros(usual.size, np.float32)
        fill(*keys[row], 0, expected)
        np.testing.assert_allclose(noisy.sums[row] - plain.sums[row], deviation * expected, atol=1e-5)


def test_the_same_bytes_twice_whatever_torch_may_do_otherwise() -> None:
    data, module = split((1, 28, 28), 10), build_model("lenet5", (1, 28, 28), 10)
    given = asked(TorchModule(module), data)
    found = []
    for threads in (1, 2):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        found.append(DeviceNetwork(CPU, module).clipped_gradients(*given).sums.tobytes())
        assert torch.get_num_threads() == threads
        torch.set_num_threads(before)
    assert found[0] == found[1]
    assert not torch.are_deterministic_algorithms_enabled()


def test_bfloat16_is_for_passes_and_clips_hold_in_float32() -> None:
    """Gradients differ by what bfloat16 rounds (8 bits), and no sum of n clipped ones is longer than n clips."""
    data, module = split((1, 28, 28), 10), build_model("cnn_mapa", (1, 28, 28), 10)
    whole, short = DeviceNetwork(CPU, module), DeviceNetwork(Device("cpu", 2**29, "bfloat16"), module)
    models, _, _, _ = asked(whole, data, (1,) * 8)
    batches, clip = [np.array([row]) for row in range(8)], 0.3
    expected, found = (each.clipped_gradients(models, data, batches, clip) for each in (whole, short))
    assert found.sums.dtype == np.float32
    error = np.linalg.norm(found.sums - expected.sums, axis=1) / np.linalg.norm(expected.sums, axis=1)
    assert (error > 1e-4).all()  # otherwise it was in float32
    assert (error < 0.2).all()
    norms = np.linalg.norm(found.sums.astype(np.float64), axis=1)
    assert (found.unclipped == 0).all()
    np.testing.assert_allclose(norms, clip, rtol=1e-5)


def test_every_example_is_in_one_chunk() -> None:
    for lengths in ([9, 9, 4, 4, 1, 0, 0], [30, 2, 1], [5], [0, 0], []):
        for limits in (DeviceLimits(8, 100), DeviceLimits(20, 100), DeviceLimits(1, 1), DeviceLimits(1000, 5)):
            seen = [np.zeros(length, int) for length in lengths]
            for chunk in chunks(lengths, limits):
                padded = (chunk.rows.stop - chunk.rows.start) * (chunk.last - chunk.first)
                assert padded <= max(limits.examples, 1)
                for row in range(chunk.rows.start, chunk.rows.stop):
                    seen[row][chunk.first : chunk.last] += 1
            assert all((each == 1).all() for each in seen)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_that_is_not_there_is_refused_in_one_line() -> None:
    with pytest.raises(
        SpecError, match=r"^compute.device: cuda needs a GPU that torch can use, and torch .* finds none"
    ):
        device_of("cuda", 512)
    assert device_of("auto", 512).name == "cpu"


@pytest.mark.parametrize(
    ("memory", "said"),
    [
        (
            1,
            r"^compute.device: there is no room on cpu for 1 example at once; lower .* choose a smaller model",
        ),
        (2**29, r"^compute.device: there is no room on cpu for 100 examples at once; lower .* or compute.memory_mib"),
    ],
)
def test_a_device_that_is_too_small_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, memory: int, said: str
) -> None:
    data, module = split((1, 8, 8), 10), build_model("mlp", (1, 8, 8), 10)
    device = DeviceNetwork(Device("cpu", memory), module)
    given = asked(device, data)

    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("gossamer.objectives.device.network.StackedGradients.__call__", full)
    with pytest.raises(ModelError, match=said):
        device.clipped_gradients(*given)


def test_what_is_deployed_computes_as_usual() -> None:
    """A deployed side computes with the steady objective, whose sums come without noise, and example by example."""
    device = DeviceNetwork(CPU, build_model("mlp", (64,), 10))
    assert type(device.steady()) is TorchModule
    assert not isinstance(device.steady(), NoisyObjective)


def test_objectives_on_a_device_can_be_sent_to_other_processes() -> None:
    data = split((12,), 3)
    _, device = small()
    given = asked(device, data)
    twin = pickle.loads(pickle.dumps(device))
    assert twin.clipped_gradients(*given).sums.tobytes() == device.clipped_gradients(*given).sums.tobytes()


gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")


@gpu
@pytest.mark.parametrize("name", ["cnn_mapa", "lenet5"])
def test_a_gpu_agrees_with_the_processor_and_with_itself(name: str) -> None:
    shape = (1, 28, 28)
    data, there = split(shape, 10), device_of("cuda", 512)
    module = build_model(name, shape, 10)
    usual, device = TorchModule(module, strategy="layers"), DeviceNetwork(there, module)
    given = asked(usual, data)
    keys = np.random.default_rng(3).integers(0, 2**64, (len(LENGTHS), 2), dtype=np.uint64)
    noise, silence = (Normals(keys, np.full(len(LENGTHS), sd)) for sd in (1.0, 0.0))
    np.testing.assert_allclose(
        device.noisy_gradients(*given, silence).sums, usual.clipped_gradients(*given).sums, atol=1e-5
    )
    first, second = (device.noisy_gradients(*given, noise).sums for _ in range(2))
    assert first.tobytes() == second.tobytes()
