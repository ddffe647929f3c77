"""One trainer's loop, made private by Gossamer."""

import numpy as np
import torch
from torch import nn

import gossamer as gs

digits = {name: torch.from_numpy(part) for name, part in np.load("digits.npz").items()}
network = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))

data = gs.Data(**digits, labels=range(10))
algorithm = gs.Baseline(name="central", batch_size=128, learning_rate=0.5)
privacy = {"privacy": {"clip": 1.0}, "budget": {"epsilon": 5, "delta": 1e-4}, "stop": {"epochs": 20}}
result = gs.run(gs.Experiment(algorithm=algorithm, **privacy), data=data, module=network)
print(f"accuracy {result.summary['metrics']['mean_model_test_accuracy']:.3f}, epsilon {result.guarantee.epsilon:.2f}")
