"""Checks and steps of a large network take few times its memory."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from gossamer.data.examples import Split
from gossamer.objectives.networks.module import TorchModule


def network(activation: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(64, 1024), activation, nn.Linear(1024, 1024), activation, nn.Linear(1024, 10))


def most_alive(call: object) -> int:
    """Bytes of torch's arrays and of NumPy's at most, each by itself, above what there was before."""
    assert callable(call)
    tracemalloc.start()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        call()
    numpys = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    events = found.profiler.kineto_results.events()  # type: ignore[union-attr]
    taken = [each for each in events if each.name() == "[memory]"]
    changes = [each.nbytes() for each in sorted(taken, key=lambda each: each.start_ns())]
    return int(np.cumsum(changes).max()) + numpys


def kept() -> int:
    """Bytes of torch's arrays of 2^16 numbers or more that are alive, each once, whatever views there are of it."""
    gc.collect()
    arrays = [each for each in gc.get_objects() if type(each) in (torch.Tensor, nn.Parameter) and each.numel() >= 2**16]
    plain = [each.untyped_storage() for each in arrays if not torch._C._functorch.is_functorch_wrapped_tensor(each)]  # type: ignore[attr-defined]
    return sum({each.data_ptr(): each.nbytes() for each in plain}.values())


def made() -> tuple[TorchModule, Split]:
    generator = np.random.default_rng(0)
    data = Split(generator.standard_normal((3, 64)).astype(np.float32), generator.integers(0, 10, 3))
    return TorchModule(network(nn.GELU()), threads=1), data


def test_the_check_of_gradients_of_examples_takes_few_models() -> None:
    """One float64 gradient is 2 models: at the model (2) one of an example (2), or the layers' (2), and what is made of
    numbers meanwhile; both examples' gradients, both ways, with copies, were 20 and more, and a float32 model beside
    them one more."""
    objective, data = made()
    assert objective.plan(data).strategy == "layers"  # packages that are loaded the first time have arrays, too
    assert most_alive(lambda: objective.steady().plan(data)) <= 6.5 * 4 * objective.size


def test_a_module_keeps_its_own_numbers_and_no_copy_of_them() -> None:
    """Beside the model itself; vectors of them, and of the model in each of two plans, made 6 models of 2. A step has a
    copy of its model, its sum, and the sum of all pieces; what set it to zero had another."""
    before, (objective, data) = kept(), made()
    models = objective.initial(np.random.default_rng(0))[None]
    for each in (objective, objective.steady()):
        assert each.clipped_gradients(models, data, [np.arange(1)], 1.0).zeroed.tolist() == [0]
    assert kept() - before <= 2.1 * 4 * objective.size
    steady = objective.steady()
    most = most_alive(lambda: steady.clipped_gradients(models, data, [np.arange(1)], 1.0))
    assert most <= 3.2 * 4 * objective.size
