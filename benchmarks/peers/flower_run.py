"""A run of Flower's simulation: ``FedAvg`` with central differential privacy by fixed clipping."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.simulation import run_simulation
from torch import Tensor

from peers import jobs, mnist
from peers.apart import Turns, asked_for
from peers.measured import Asked
from peers.networks import network
from peers.plain import local_epoch


@cache
def _clients() -> list[tuple[Tensor, Tensor]]:
    """Examples of all clients, read once by each actor."""
    asked = asked_for()
    x, y = mnist.read(asked.data / "mnist")
    return [(torch.from_numpy(x[rows]), torch.from_numpy(y[rows])) for rows in mnist.shards(asked.seed)]


def client_app(asked: Asked) -> ClientApp:
    """An epoch at the model that comes."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        module = network(asked.job.model, asked.seed)
        module.load_state_dict(message.content["arrays"].to_torch_state_dict())
        x, y = _clients()[int(context.node_config["partition-id"])]
        local_epoch(module, x, y, torch.from_numpy(np.random.default_rng().permutation(len(x))))
        answer = {"arrays": ArrayRecord(module.state_dict()), "metrics": MetricRecord({"num-examples": len(x)})}
        return Message(content=RecordDict(answer), reply_to=message)

    return app


def server_app(asked: Asked, turns: Turns) -> ServerApp:
    """Rounds, between which the plain loop has its turn."""
    app = ServerApp()

    def between(number: int, arrays: ArrayRecord) -> None:
        turns.between(number, arrays.to_numpy_ndarrays())

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        averaging = FedAvg(
            fraction_train=jobs.COHORT / jobs.CLIENTS,
            fraction_evaluate=0.0,
            min_train_nodes=jobs.COHORT,
            min_available_nodes=jobs.CLIENTS,
        )
        private = DifferentialPrivacyServerSideFixedClipping(
            averaging, jobs.NOISE_MULTIPLIER, jobs.CLIP, num_sampled_clients=jobs.COHORT
        )
        private.start(
            grid=grid,
            initial_arrays=ArrayRecord(network(asked.job.model, asked.seed).state_dict()),
            num_rounds=asked.job.steps + jobs.WARM_ROUNDS,
            train_config=ConfigRecord({}),
            evaluate_fn=between,
        )

    return app


def main() -> None:
    """Run, and print the seconds of rounds."""
    asked = asked_for()
    turns = Turns(asked)
    run_simulation(
        server_app=server_app(asked, turns),
        client_app=client_app(asked),
        num_supernodes=jobs.CLIENTS,
        backend_config={
            "init_args": {"num_cpus": asked.job.threads, "include_dashboard": False, "log_to_driver": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    turns.report()


if __name__ == "__main__":
    # What actors are given is found by its module's name, which they can import.
    from peers import flower_run

    flower_run.main()
