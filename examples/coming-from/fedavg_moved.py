"""Twenty clients and a trusted server that adds the noise, by Gossamer."""

import numpy as np
import torch
from torch import nn

import gossamer as gs

digits = {name: torch.from_numpy(part) for name, part in np.load("digits.npz").items()}
network = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))

data = gs.Data(**digits, labels=range(10))
local = {"local_epochs": 2, "batch_size": 4, "local_learning_rate": 0.3}
algorithm = gs.FedAvg(nodes=20, rounds=30, noise_by="server", trusted="server", **local)
privacy = {"privacy": {"noise_multiplier": 1.0, "clip": 1.0}}
result = gs.run(gs.Experiment(algorithm=algorithm, **privacy), data=data, module=network)
print(f"accuracy {result.summary['metrics']['mean_model_test_accuracy']:.3f}, epsilon {result.guarantee.epsilon:.2f}")
