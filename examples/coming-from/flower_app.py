"""Twenty clients and a server that adds the noise, by Flower."""

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.simulation import run_simulation
from torch import nn

digits = {name: torch.from_numpy(part) for name, part in np.load("digits.npz").items()}
network = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
client, server = ClientApp(), ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    own = slice(int(context.node_config["partition-id"]), None, 20)
    x, y = digits["x"][own], digits["y"][own]
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(network.parameters(), lr=0.3)
    for _ in range(2):
        for rows in torch.randperm(len(x)).split(4):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(x[rows]), y[rows]).backward()
            optimizer.step()
    answer = {"arrays": ArrayRecord(network.state_dict()), "metrics": MetricRecord({"num-examples": len(x)})}
    return Message(RecordDict(answer), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    averaging = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=20, min_available_nodes=20)
    strategy = DifferentialPrivacyServerSideFixedClipping(
        averaging, noise_multiplier=1.0, clipping_norm=1.0, num_sampled_clients=20
    )
    found = strategy.start(grid=grid, initial_arrays=ArrayRecord(network.state_dict()), num_rounds=30)
    network.load_state_dict(found.arrays.to_torch_state_dict())
    with torch.no_grad():
        right = network(digits["x_test"]).argmax(1) == digits["y_test"]
    print(f"accuracy {right.float().mean():.3f}")


if __name__ == "__main__":
    run_simulation(server, client, num_supernodes=20)
