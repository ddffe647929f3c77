"""Twenty users and a trusted server that adds the noise, by pfl-research."""

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism
from torch import nn

digits = {name: torch.from_numpy(part) for name, part in np.load("digits.npz").items()}
network = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = network

    def loss(self, x, y, evaluate=False):
        return nn.functional.cross_entropy(self.layers(x), y)

    def metrics(self, x, y):
        return {}


def user(number):
    own = slice(number, None, 20)
    return PyTorchTensorDataset((digits["x"][own], digits["y"][own]), user_id=str(number))


module = Network()
users = FederatedDataset(user, get_user_sampler("minimize_reuse", list(range(20))))
noise = CentrallyAppliedPrivacyMechanism(GaussianMechanism(clipping_bound=1.0, relative_noise_stddev=1.0))
FederatedAveraging().run(
    NNAlgorithmParams(central_num_iterations=30, evaluation_frequency=1_000, train_cohort_size=20, val_cohort_size=0),
    SimulatedBackend(training_data=users, val_data=users, postprocessors=[noise]),
    PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0)),
    NNTrainHyperParams(local_num_epochs=2, local_learning_rate=0.3, local_batch_size=4),
)
with torch.no_grad():
    right = network(digits["x_test"]).argmax(1) == digits["y_test"]
print(f"accuracy {right.float().mean():.3f}")
