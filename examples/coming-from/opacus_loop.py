"""One trainer's loop, made private by Opacus."""

import numpy as np
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

digits = {name: torch.from_numpy(part) for name, part in np.load("digits.npz").items()}
network = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))

loader = DataLoader(TensorDataset(digits["x"], digits["y"]), batch_size=128)
optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
engine = PrivacyEngine()
network, optimizer, loader = engine.make_private_with_epsilon(
    module=network,
    optimizer=optimizer,
    data_loader=loader,
    target_epsilon=5,
    target_delta=1e-4,
    epochs=20,
    max_grad_norm=1.0,
)
loss = nn.CrossEntropyLoss()
for _ in range(20):
    for x, y in loader:
        optimizer.zero_grad()
        loss(network(x), y).backward()
        optimizer.step()

with torch.no_grad():
    right = network(digits["x_test"]).argmax(1) == digits["y_test"]
print(f"accuracy {right.float().mean():.3f}, epsilon {engine.get_epsilon(1e-4):.2f}")
