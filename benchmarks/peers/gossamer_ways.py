"""Gossamer, and ``vmap(grad)`` by hand, on all jobs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from local_steps import bare_steps
from torch import nn
from torch.nn import functional as F

import gossamer as gs
from gossamer.data.datasets import load_dataset
from gossamer.data.examples import Split
from gossamer.data.settings import DatasetSettings
from gossamer.experiment.runs.trackers import RunProgress
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.networks.module import TorchModule
from gossamer.objectives.objective import LocalRound, Minibatches, Objective, Training
from gossamer.privacy.mechanisms import Gaussian
from gossamer.randomness import stream
from peers import jobs, mnist
from peers.measured import Asked, Measured, Times, in_turn, relative
from peers.networks import network
from peers.plain import (
    Batches,
    ClippedByVmap,
    PlainFederation,
    local_epoch,
    plain_steps,
    reference,
    vmap_steps,
)

PACKAGES = ("torch", "numpy", "numba", "gossamer-fl")
MECHANISM = Gaussian(clip=jobs.CLIP, noise_multiplier=jobs.NOISE_MULTIPLIER)
ROUND, L2 = 50, 1 / 32_561
"""Steps of a sequential round; the strength of a9a's L2 term."""


def flat(module: nn.Module) -> np.ndarray:
    """Parameters as one vector, in the order of ``state_dict``."""
    return torch.cat([value.detach().flatten() for value in module.parameters()]).numpy()


def objective_of(asked: Asked, threads: int) -> Objective:
    """The user's own module, or the linear model that it is."""
    if asked.job.model == "softmax":
        return LinearModel("softmax", 784, 10)
    return TorchModule(network(asked.job.model, asked.seed), threads=threads)


def split_of(asked: Asked, x: np.ndarray, y: np.ndarray) -> Split:
    """MNIST, in rows of pixels for linear models."""
    return Split(x.reshape(len(x), -1) if asked.job.model == "softmax" else x, y)


@contextmanager
def cores(count: int) -> Iterator[None]:
    """Only so many cores inside: workers of a run are as many as there are."""
    before = os.sched_getaffinity(0)
    if len(before) < count:
        raise OSError(f"expected {count} cores, found {len(before)}")
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


# Steps


def step(asked: Asked) -> Measured:
    """Private steps: clipped gradients, noise, step."""
    job = asked.job
    torch.set_num_threads(job.threads)
    x, y = mnist.read(asked.data / "mnist")
    objective, data, batches = objective_of(asked, job.threads), split_of(asked, x, y), Batches(asked, x, y)
    generator = stream(asked.seed, "noise")
    start = flat(network(job.model, asked.seed))
    model = start.copy()

    def steps() -> None:
        for rows in batches.rows:
            total = objective.clipped_gradients(model[None], data, [rows], MECHANISM.clip).sums[0]
            total += MECHANISM.noise(generator, objective.size, objective.dtype)
            model[:] -= np.float32(jobs.RATE / len(rows)) * total

    plain = plain_steps(network(job.model, asked.seed), batches)
    measured = in_turn(batches.prepare, plain, steps)
    expected = reference(asked, x, y)[2]
    (rows,) = mnist.batches(asked.seed, 0, 1, job.batch)
    found = objective.clipped_gradients(start[None], data, [rows], MECHANISM.clip).sums[0]
    return Measured(measured.block, relative(found, expected))


def vmap_step(asked: Asked) -> Measured:
    """The same by ``vmap(grad)``, which is its own reference."""
    torch.set_num_threads(asked.job.threads)
    batches = Batches(asked, *mnist.read(asked.data / "mnist"))
    modules = [network(asked.job.model, asked.seed) for _ in range(2)]
    return in_turn(batches.prepare, plain_steps(modules[0], batches), vmap_steps(modules[1], batches, asked.seed))


# Workers


class Workers:
    """Models of 16 workers, each with a batch of its own in each step."""

    def __init__(self, asked: Asked) -> None:
        self.x, self.y = mnist.read(asked.data / "mnist")
        self._asked = asked
        self.models = np.stack([flat(network(asked.job.model, asked.seed + k)) for k in range(jobs.NODES)])
        self.gathered: list[list[tuple[torch.Tensor, torch.Tensor]]] = []
        self.rows = np.empty((0, 0, 0), np.int64)
        self._module = network(asked.job.model, asked.seed)
        self._clipped = ClippedByVmap(self._module)
        self._generator = torch.Generator().manual_seed(asked.seed)
        self._shapes = [value.shape for value in self._module.parameters()]

    def prepare(self, number: int) -> int:
        """Make the batches of a block; a worker's step is what is counted."""
        job = self._asked.job
        self.rows = mnist.batches(self._asked.seed, number, job.steps * jobs.NODES, job.batch).reshape(
            job.steps, jobs.NODES, job.batch
        )
        self.gathered = [[(torch.from_numpy(self.x[r]), torch.from_numpy(self.y[r])) for r in s] for s in self.rows]
        return job.steps * jobs.NODES

    def parameters(self, model: np.ndarray) -> dict[str, torch.Tensor]:
        """Views of a model."""
        pieces = torch.from_numpy(model).split([shape.numel() for shape in self._shapes])
        return {n: piece.view(shape) for n, piece, shape in zip(self._clipped.names, pieces, self._shapes, strict=True)}

    def clipped(self, model: np.ndarray, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Sum of clipped gradients by ``vmap(grad)``."""
        found = self._clipped(self.parameters(model), *batch)
        return torch.cat([found[name].flatten() for name in self._clipped.names])

    def loop(self, models: np.ndarray) -> Callable[[], None]:
        """One worker after the other."""

        def steps() -> None:
            for step in self.gathered:
                for model, batch in zip(models, step, strict=True):
                    total = self.clipped(model, batch)
                    total += torch.randn(total.shape, generator=self._generator) * MECHANISM.standard_deviation
                    model -= np.float32(jobs.RATE / len(batch[0])) * total.numpy()

        return steps


def workers(asked: Asked) -> Measured:
    """All workers' gradients in one call."""
    torch.set_num_threads(asked.job.threads)
    given, objective = Workers(asked), objective_of(asked, asked.job.threads)
    data, models = split_of(asked, given.x, given.y), given.models.copy()
    generator = stream(asked.seed, "noise")

    def steps() -> None:
        for rows in given.rows:
            sums = objective.clipped_gradients(models, data, list(rows), MECHANISM.clip).sums
            for model, total in zip(models, sums, strict=True):
                total += MECHANISM.noise(generator, objective.size, objective.dtype)
                model -= np.float32(jobs.RATE / asked.job.batch) * total

    measured = in_turn(given.prepare, given.loop(given.models.copy()), steps)
    given.prepare(0)
    found = objective.clipped_gradients(given.models, data, list(given.rows[0]), MECHANISM.clip).sums
    pairs = zip(given.models, given.gathered[0], strict=True)
    expected = np.stack([given.clipped(model, batch).numpy() for model, batch in pairs])
    return Measured(measured.block, relative(found, expected))


# Whole runs


class Clock(RunProgress):
    """When a run began and when each update was counted, in seconds."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def planned(self, plan: object) -> None:
        self.at.append(time.perf_counter())

    def updated(self, updates: int) -> None:
        self.at.extend([time.perf_counter()] * (updates + 1 - len(self.at)))


def seconds_an_update(asked: Asked, spec: gs.Experiment, warm: int) -> float:
    """Of a run in the simulator, after its first ``warm`` updates, and without the look at its end."""
    os.environ["GOSSAMER_DATA"] = str(asked.data)
    clock = Clock()
    with cores(asked.job.threads):
        gs.run(spec, progress=clock)
    return (clock.at[-1] - clock.at[warm]) / (len(clock.at) - 1 - warm)


def timed_runs(
    spec: Callable[[int], gs.Experiment], warm: int, asked: Asked, base: Callable[[int], float], each: int = 1
) -> Measured:
    """Blocks of a plain loop, by its seconds an update, and then a run, which counts one for ``each`` of them."""

    def block(number: int) -> Times:
        return Times(base(number), seconds_an_update(asked, spec(number), warm) / each)

    block(0)
    return Measured(block)


def clients(asked: Asked) -> Measured:
    """Client updates of a run of ``fedavg``."""
    job, plain = asked.job, PlainFederation(asked)

    def spec(number: int) -> gs.Experiment:
        return gs.Experiment.model_validate(
            {
                "seed": asked.seed + number,
                "dataset": "mnist",
                "partition": {"name": "sizes", "sizes": [jobs.SHARD] * jobs.CLIENTS},
                "objective": {"name": "cnn_mapa"},
                "algorithm": {
                    "name": "fedavg",
                    "nodes": jobs.CLIENTS,
                    "clients_per_round": jobs.COHORT,
                    "rounds": job.steps + jobs.WARM_ROUNDS,
                    "local_epochs": 1,
                    "batch_size": job.batch,
                    "local_learning_rate": jobs.RATE,
                    "noise_by": "server",
                    "trusted": "server",
                },
                "privacy": {"clip": jobs.CLIP, "noise_multiplier": jobs.NOISE_MULTIPLIER},
                "evaluation": {"name": "off", "nodes": 1},
            }
        )

    def base(number: int) -> float:
        start = time.perf_counter()
        for _ in range(job.steps):
            plain.round()
        return (time.perf_counter() - start) / (job.steps * jobs.COHORT)

    # The server that adds the noise counts its sums, one a round.
    measured = timed_runs(spec, jobs.WARM_ROUNDS, asked, base, each=jobs.COHORT)
    return Measured(measured.block, update_difference(asked))


def update_difference(asked: Asked) -> float:
    """Of one client's update, from PyTorch's on the same batches."""
    x, y = mnist.read(asked.data / "mnist")
    rows, module = mnist.shards(asked.seed)[0], network(asked.job.model, asked.seed)
    start = flat(module)
    batches = Minibatches(rows, np.full(jobs.SHARD // asked.job.batch, asked.job.batch))
    objective = objective_of(asked, asked.job.threads)
    found = objective.local_training(start[None], Split(x, y), [Training(batches, jobs.RATE)]).updates[0]
    local_epoch(module, torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(rows))
    return relative(found, flat(module).astype(np.float64) - start)


def gossip(asked: Asked) -> Measured:
    """Updates of a run of gossip, beside the loop of workers."""
    torch.set_num_threads(asked.job.threads)
    given = Workers(asked)
    loop = given.loop(given.models.copy())

    def spec(number: int) -> gs.Experiment:
        algorithm = {
            "name": "gossip",
            "nodes": jobs.NODES,
            "batch_size": asked.job.batch,
            "learning_rate": jobs.RATE,
            "updates_per_node": 10 * asked.job.steps,
        }
        privacy = {"clip": jobs.CLIP, "noise_multiplier": jobs.NOISE_MULTIPLIER}
        return gs.Experiment.model_validate(
            {
                "seed": asked.seed + number,
                "dataset": "mnist",
                "objective": {"name": "cnn_mapa"},
                "algorithm": algorithm,
                "privacy": privacy,
                "evaluation": {"name": "off", "nodes": 1},
            }
        )

    def base(number: int) -> float:
        steps = given.prepare(number)
        start = time.perf_counter()
        loop()
        return (time.perf_counter() - start) / steps

    return timed_runs(spec, jobs.NODES, asked, base)


# Rounds of single examples


class Rounds:
    """Rounds of a block, each from the start."""

    def __init__(self, asked: Asked, examples: int) -> None:
        self._asked, self._examples = asked, examples
        self.rows = np.empty((0, 0), np.int64)

    def prepare(self, number: int) -> int:
        """Draw the examples; a step is what is counted."""
        steps = self._asked.job.steps
        self.rows = mnist.batches(self._asked.seed, number, steps, ROUND, self._examples)
        return self.rows.size


def ours(objective: Objective, data: Split, start: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """What a round moves the model by."""
    rates = np.full(len(rows), jobs.RATE)
    given = LocalRound(start[None], np.zeros(1, np.int64), rows, rates, jobs.RATE, jobs.CLIP)
    moved: np.ndarray = -np.float32(jobs.RATE) * objective.local_steps(given, data).total
    return moved


def compared(rounds: Rounds, base: Callable[[np.ndarray], np.ndarray], way: Callable[[Any], np.ndarray]) -> Measured:
    """Rounds one by one, and the distance between what both come to in one."""

    def each(side: Callable[[np.ndarray], np.ndarray]) -> Callable[[], None]:
        def run() -> None:
            for rows in rounds.rows:
                side(rows)

        return run

    measured = in_turn(rounds.prepare, each(base), each(way))
    return Measured(measured.block, relative(way(rounds.rows[0]), base(rounds.rows[0])))


def rounds(asked: Asked) -> Measured:
    """Sequential rounds of 50 steps, on one thread."""
    torch.set_num_threads(1)
    return rounds_on_a9a(asked) if asked.job.model == "logistic" else rounds_of_network(asked)


def rounds_on_a9a(asked: Asked) -> Measured:
    """Beside a numba loop that does nothing else."""
    data = a9a(asked)
    model = LinearModel("logistic", data.features.shape[1], 2, intercept=False, l2=L2)
    start = np.zeros(model.size, np.float32)

    def bare(rows: np.ndarray) -> np.ndarray:
        w = start.copy()
        bare_steps(w, data.features, data.targets, rows, jobs.RATE, jobs.CLIP, L2)
        return w

    return compared(Rounds(asked, len(data)), bare, lambda rows: ours(model, data, start, rows))


def a9a(asked: Asked) -> Split:
    """The training examples of a9a, dense."""
    os.environ["GOSSAMER_DATA"] = str(asked.data)
    train = load_dataset(DatasetSettings(name="a9a")).train
    features = train.features.toarray() if train.sparse else train.features
    return Split(np.ascontiguousarray(features, np.float32), train.targets)


def rounds_of_network(asked: Asked) -> Measured:
    """Beside PyTorch's loop without clip and noise; in the comparison of where they come to, it clips as well."""
    x, y = mnist.read(asked.data / "mnist")
    data, objective = Split(x, y), objective_of(asked, 1)
    start = flat(network(asked.job.model, asked.seed))
    images, labels = torch.from_numpy(x), torch.from_numpy(y)

    module = network(asked.job.model, asked.seed)
    first = [value.detach().clone() for value in module.parameters()]

    def plain(rows: np.ndarray, clip: bool = False) -> np.ndarray:
        with torch.no_grad():
            for value, begins in zip(module.parameters(), first, strict=True):
                value.copy_(begins)
        optimizer = torch.optim.SGD(module.parameters(), lr=jobs.RATE)
        for row in rows.tolist():
            optimizer.zero_grad()
            F.cross_entropy(module(images[row : row + 1]), labels[row : row + 1]).backward()
            if clip:
                nn.utils.clip_grad_norm_(module.parameters(), jobs.CLIP)
            optimizer.step()
        return flat(module) - start

    given = Rounds(asked, len(data))
    measured = compared(given, plain, lambda rows: ours(objective, data, start, rows))
    rows = given.rows[0]
    return Measured(measured.block, relative(ours(objective, data, start, rows), plain(rows, clip=True)))


WAYS: dict[tuple[str, str], Callable[[Asked], Measured]] = {
    ("step", "Gossamer"): step,
    ("step", "vmap(grad)"): vmap_step,
    ("clients", "Gossamer"): clients,
    ("workers", "Gossamer"): workers,
    ("workers", "Gossamer gossip"): gossip,
    ("rounds", "Gossamer"): rounds,
}
