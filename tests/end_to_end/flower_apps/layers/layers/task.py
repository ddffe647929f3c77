"""layers: the network, its data, and how it is trained."""

from functools import cache

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.fc1 = nn.Linear(16 * 4, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = self.pool(torch.relu(self.norm(self.conv1(x.reshape(-1, 1, 8, 8)))))
        x = self.pool(torch.relu(self.conv2(x)))
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


@cache
def digits():
    return load_digits(return_X_y=True)


def load_data(partition_id, num_partitions):
    x, y = digits()
    own = np.arange(partition_id, len(x), num_partitions)
    x, y = torch.tensor(x[own] / 16, dtype=torch.float32), torch.tensor(y[own])
    cut = int(0.8 * len(own))
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])


def train(net, data, epochs, lr):
    x, y = data
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(16):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
    return loss.item()


def test(net, data):
    x, y = data
    net.eval()
    with torch.no_grad():
        outputs = net(x)
    return nn.functional.cross_entropy(outputs, y).item(), (outputs.argmax(1) == y).float().mean().item()
