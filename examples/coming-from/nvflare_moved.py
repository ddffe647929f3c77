"""Four sites that each add noise of their own before anything is sent, by Gossamer."""

import numpy as np
import torch
from torch import nn

import gossamer as gs

digits = {name: torch.from_numpy(part) for name, part in np.load("digits.npz").items()}
network = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))

data = gs.Data(**digits, labels=range(10))
local = {"local_steps": 20, "batch_size": 64, "local_learning_rate": 1.0}
algorithm = gs.FedAvg(nodes=4, rounds=10, privacy_unit="example", **local)
privacy = {"privacy": {"clip": 1.0}, "budget": {"epsilon": 5, "delta": 1e-4}}
result = gs.run(gs.Experiment(algorithm=algorithm, **privacy), data=data, module=network)
print(f"accuracy {result.summary['metrics']['mean_model_test_accuracy']:.3f}, epsilon {result.guarantee.epsilon:.2f}")
