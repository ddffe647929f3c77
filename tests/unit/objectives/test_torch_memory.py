"""Checks of a large network take few times its memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from gossamer.objectives.networks import checks
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


def test_the_check_of_gradients_of_examples_takes_few_models() -> None:
    """One float64 gradient is 2 models: at the model (2) one of an example (2), or the layers' (2), and what is made of
    numbers meanwhile; both examples' gradients, both ways, with copies, were 20 and more."""
    objective = TorchModule(network(nn.GELU()), threads=1)
    known, model = objective.network, torch.from_numpy(objective.initial(np.random.default_rng(0)))
    features = torch.randn((3, 64), generator=torch.Generator().manual_seed(0))
    checks.probe(known, model, features)  # packages that are loaded the first time have arrays, too
    assert checks.probe(known, model, features).layers is None
    assert most_alive(lambda: checks.probe(known, model, features)) <= 7.5 * 4 * objective.size
