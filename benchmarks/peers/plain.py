"""Loops in PyTorch alone: steps that are not private, ``vmap(grad)`` by hand, and federated averaging."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from peers import jobs, mnist
from peers.measured import Asked
from peers.networks import network


class Batches:
    """Batches of a block, gathered before the clock starts, as a loader would hand them over."""

    def __init__(self, asked: Asked, x: npt.NDArray[np.float32], y: npt.NDArray[np.int64]) -> None:
        self._asked, self._x, self._y = asked, torch.from_numpy(x), torch.from_numpy(y)
        self.rows = np.empty((0, 0), np.int64)
        self.gathered: list[tuple[Tensor, Tensor]] = []

    def prepare(self, number: int) -> int:
        """Make those of block ``number``."""
        job = self._asked.job
        self.rows = mnist.batches(self._asked.seed, number, job.steps, job.batch)
        self.gathered = [(self._x[rows], self._y[rows]) for rows in torch.from_numpy(self.rows)]
        return job.steps


def plain_steps(module: nn.Module, batches: Batches) -> Callable[[], None]:
    """Forward, mean loss, backward and SGD step, for each batch."""
    optimizer = torch.optim.SGD(module.parameters(), lr=jobs.RATE)

    def steps() -> None:
        for x, y in batches.gathered:
            optimizer.zero_grad()
            F.cross_entropy(module(x), y).backward()
            optimizer.step()

    return steps


class ClippedByVmap:
    """Sums of clipped gradients of a module's loss, by ``vmap(grad)``."""

    def __init__(self, module: nn.Module) -> None:
        self.names = [name for name, _ in module.named_parameters()]

        def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            return F.cross_entropy(functional_call(module, parameters, (x[None],)), y[None])

        self._gradients = vmap(grad(loss), in_dims=(None, 0, 0))

    def __call__(self, parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """By parameter."""
        found = self._gradients(parameters, x, y)
        norms = torch.stack([each.flatten(1).square().sum(1) for each in found.values()]).sum(0).sqrt()
        weights = (jobs.CLIP / norms).clamp(max=1)
        return {name: torch.tensordot(weights, each, 1) for name, each in found.items()}

    def flat(self, module: nn.Module, x: Tensor, y: Tensor) -> npt.NDArray[np.float32]:
        """At the module's own parameters, as one vector."""
        found = self({name: value.detach() for name, value in module.named_parameters()}, x, y)
        return torch.cat([found[name].flatten() for name in self.names]).numpy()


def vmap_steps(module: nn.Module, batches: Batches, seed: int) -> Callable[[], None]:
    """Private steps by ``vmap(grad)``."""
    clipped, generator = ClippedByVmap(module), torch.Generator().manual_seed(seed)
    parameters = {name: value.detach().clone() for name, value in module.named_parameters()}

    def steps() -> None:
        for x, y in batches.gathered:
            for name, total in clipped(parameters, x, y).items():
                total += torch.randn(total.shape, generator=generator) * (jobs.CLIP * jobs.NOISE_MULTIPLIER)
                parameters[name].sub_(total, alpha=jobs.RATE / len(x))

    return steps


def reference(asked: Asked, x: npt.NDArray[np.float32], y: npt.NDArray[np.int64]) -> tuple[Tensor, Tensor, np.ndarray]:
    """A batch, and the sum of its clipped gradients at the first model, by ``vmap(grad)``."""
    (rows,) = mnist.batches(asked.seed, 0, 1, asked.job.batch)
    images, labels = torch.from_numpy(x[rows]), torch.from_numpy(y[rows])
    module = network(asked.job.model, asked.seed)
    return images, labels, ClippedByVmap(module).flat(module, images, labels)


def local_epoch(module: nn.Module, x: Tensor, y: Tensor, order: Tensor) -> None:
    """One epoch of a client in batches, rows in ``order``."""
    optimizer = torch.optim.SGD(module.parameters(), lr=jobs.RATE)
    for rows in order.split(jobs.CLIENT_BATCH):
        optimizer.zero_grad()
        F.cross_entropy(module(x[rows]), y[rows]).backward()
        optimizer.step()


class PlainFederation:
    """Rounds of federated averaging as a loop over the clients, without noise and on one thread."""

    def __init__(self, asked: Asked) -> None:
        x, y = mnist.read(asked.data / "mnist")
        self._clients = [(torch.from_numpy(x[rows]), torch.from_numpy(y[rows])) for rows in mnist.shards(asked.seed)]
        self._module = network(asked.job.model, asked.seed)
        self._state = [parameter.detach().clone() for parameter in self._module.parameters()]
        self._generator = np.random.default_rng(asked.seed)

    def round(self) -> None:
        """Local training of a cohort, and the mean of their models."""
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        sums = [torch.zeros_like(value) for value in self._state]
        for client in self._generator.choice(jobs.CLIENTS, jobs.COHORT, replace=False):
            with torch.no_grad():
                for parameter, value in zip(self._module.parameters(), self._state, strict=True):
                    parameter.copy_(value)
            order = torch.from_numpy(self._generator.permutation(jobs.SHARD))
            local_epoch(self._module, *self._clients[client], order)
            for total, parameter in zip(sums, self._module.parameters(), strict=True):
                total += parameter.detach()
        self._state = [total / jobs.COHORT for total in sums]
        torch.set_num_threads(before)
