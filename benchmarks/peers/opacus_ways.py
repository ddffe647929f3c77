"""Private steps by Opacus, in three of its modes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from peers import jobs, mnist
from peers.measured import Asked, Measured, in_turn, relative
from peers.networks import network
from peers.plain import Batches, plain_steps, reference

PACKAGES = ("torch", "numpy", "opacus")


def private(asked: Asked, mode: str, noise: float) -> tuple[nn.Module, Any, Callable[..., Any]]:
    """Module, optimizer and criterion as ``make_private`` gives them."""
    module = network(asked.job.model, asked.seed)
    criterion = nn.CrossEntropyLoss()
    # Whole batches only: it divides by the number of examples over that of batches, rounded down.
    loader = DataLoader(TensorDataset(torch.zeros(60_000, 1)), batch_size=asked.job.batch, drop_last=True)
    given = {"criterion": criterion} if mode == "ghost" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that its generator is not for production
        made = PrivacyEngine().make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=jobs.RATE),
            data_loader=loader,
            noise_multiplier=noise,
            max_grad_norm=jobs.CLIP,
            poisson_sampling=False,
            grad_sample_mode=mode,
            **given,
        )
    return made[0], made[1], made[2] if mode == "ghost" else criterion


def difference(asked: Asked, mode: str, x: np.ndarray, y: np.ndarray) -> float:
    """Of the clipped sum, without noise."""
    images, labels, expected = reference(asked, x, y)
    module, optimizer, criterion = private(asked, mode, 0.0)
    optimizer.zero_grad()
    criterion(module(images), labels).backward()
    optimizer.pre_step()
    found = torch.cat([value.grad.flatten() for value in module.parameters()]) * asked.job.batch
    return relative(found.numpy(), expected)


def step(mode: str) -> Callable[[Asked], Measured]:
    """Private steps in ``mode``."""

    def prepared(asked: Asked) -> Measured:
        torch.set_num_threads(asked.job.threads)
        x, y = mnist.read(asked.data / "mnist")
        batches = Batches(asked, x, y)
        module, optimizer, criterion = private(asked, mode, jobs.NOISE_MULTIPLIER)

        def steps() -> None:
            for images, labels in batches.gathered:
                optimizer.zero_grad()
                criterion(module(images), labels).backward()
                optimizer.step()

        plain = plain_steps(network(asked.job.model, asked.seed), batches)
        measured = in_turn(batches.prepare, plain, steps)
        return Measured(measured.block, difference(asked, mode, x, y))

    return prepared


WAYS = {("step", f"Opacus {mode}"): step(mode) for mode in ("hooks", "ew", "ghost")}
