"""A Flower app of NumPy in one file, whose first model is that of a client."""

import numpy as np
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.server import ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.serverapp import ServerApp
from sklearn.datasets import load_digits


def probabilities(x, weights, bias):
    scores = x @ weights + bias
    found = np.exp(scores - scores.max(1, keepdims=True))
    return found / found.sum(1, keepdims=True)


class Client(NumPyClient):
    def __init__(self, partition, partitions):
        x, y = load_digits(return_X_y=True)
        x, y = x[partition::partitions] / 16, y[partition::partitions]
        cut = int(0.8 * len(x))
        self.train, self.test = (x[:cut], y[:cut]), (x[cut:], y[cut:])

    def get_parameters(self, config):
        return [np.zeros((64, 10)), np.zeros(10)]

    def fit(self, parameters, config):
        weights, bias = parameters
        x, y = self.train
        for _ in range(20):
            wrong = (probabilities(x, weights, bias) - np.eye(10)[y]) / len(x)
            weights, bias = weights - 2.0 * x.T @ wrong, bias - 2.0 * wrong.sum(0)
        return [weights, bias], len(x), {"seen": len(x)}

    def evaluate(self, parameters, config):
        x, y = self.test
        found = probabilities(x, *parameters)
        loss = -np.log(found[np.arange(len(y)), y]).mean()
        return float(loss), len(x), {"accuracy": float((found.argmax(1) == y).mean())}


def client_fn(context):
    return Client(context.node_config["partition-id"], context.node_config["num-partitions"]).to_client()


def weighted_average(metrics):
    total = sum(count for count, _ in metrics)
    return {"accuracy": sum(count * each["accuracy"] for count, each in metrics) / total}


def server_fn(context):
    strategy = FedAvg(evaluate_metrics_aggregation_fn=weighted_average)
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=10))


app = ClientApp(client_fn=client_fn)
server = ServerApp(server_fn=server_fn)
