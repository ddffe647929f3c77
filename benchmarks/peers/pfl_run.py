"""A run of pfl-research: federated averaging with a central Gaussian mechanism."""

from __future__ import annotations

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.internal.ops.selector import get_framework_module
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism
from torch import Tensor, nn
from torch.nn import functional as F

from peers import jobs, mnist
from peers.apart import Turns, asked_for
from peers.measured import Asked
from peers.networks import network


class Network(nn.Module):
    """The job's network with the functions that pfl asks for."""

    def __init__(self, asked: Asked) -> None:
        super().__init__()
        self.layers = network(asked.job.model, asked.seed)

    def loss(self, x: Tensor, y: Tensor, evaluate: bool = False) -> Tensor:
        self.train(not evaluate)
        return F.cross_entropy(self.layers(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, float]:
        return {}


class InTurn(TrainingProcessCallback):
    """Plain rounds between those of the run, on the first process; the others wait."""

    def __init__(self, turns: Turns | None) -> None:
        self._turns = turns

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        self._between(0, model)
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self._between(central_iteration + 1, model)
        return False, Metrics()

    def _between(self, number: int, model: PyTorchModel) -> None:
        if self._turns is not None:
            self._turns.between(number, [value.detach().numpy() for value in model.variable_map.values()])
        if torch.distributed.is_initialized():
            torch.distributed.barrier()


def users(asked: Asked) -> FederatedDataset:
    """Clients with their examples, held as tensors."""
    x, y = mnist.read(asked.data / "mnist")
    rows = mnist.shards(asked.seed)
    held = [
        PyTorchTensorDataset((torch.from_numpy(x[own]), torch.from_numpy(y[own])), user_id=str(k))
        for k, own in enumerate(rows)
    ]
    return FederatedDataset(held.__getitem__, get_user_sampler("random", list(range(jobs.CLIENTS))))


def main() -> None:
    """Run, and print the seconds of rounds."""
    asked = asked_for()
    torch.set_num_threads(1)
    np.random.seed(asked.seed)  # noqa: NPY002 (its sampler draws from numpy's own generator)
    first = get_framework_module().distributed.global_rank == 0
    module = Network(asked)
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    noise = CentrallyAppliedPrivacyMechanism(GaussianMechanism(jobs.CLIP, jobs.NOISE_MULTIPLIER))
    data = users(asked)
    turns = Turns(asked) if first else None
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=asked.job.steps + jobs.WARM_ROUNDS,
            evaluation_frequency=1_000_000,
            train_cohort_size=jobs.COHORT,
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=data, val_data=data, postprocessors=[noise]),
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=jobs.RATE, local_batch_size=asked.job.batch),
        callbacks=[InTurn(turns)],
    )
    if turns is not None:
        turns.report()


if __name__ == "__main__":
    main()
