"""Asynchronous gossip in gossipy, in an environment of its own: what an update of a logistic node takes.

    python gossipy_run.py TRAIN.npz NODES UPDATES DEGREE BATCH RATE

Each node sends its model to a random neighbour once a round, whose length differs from node to node, and whoever gets
one averages it with its own and takes one step on a batch of its examples: as many steps as messages, and no noise. One
JSON object on stdout has the processor time of a step, while nothing is evaluated.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import types

import networkx
import numpy as np
import torch

sys.modules.setdefault("torchvision", types.ModuleType("torchvision"))  # for data sets that are not loaded here

from gossipy import LOG, set_seed  # noqa: E402
from gossipy.core import AntiEntropyProtocol, CreateModelMode, StaticP2PNetwork  # noqa: E402
from gossipy.data import DataDispatcher  # noqa: E402
from gossipy.data.handler import ClassificationDataHandler  # noqa: E402
from gossipy.model.handler import TorchModelHandler  # noqa: E402
from gossipy.model.nn import LogisticRegression  # noqa: E402
from gossipy.node import GossipNode  # noqa: E402
from gossipy.simul import GossipSimulator, SimulationReport  # noqa: E402

ROUND = 100
"""Steps of time in a round, as in gossipy's own examples."""


def main(path: str, nodes: int, updates: int, degree: int, batch: int, rate: float) -> None:
    torch.set_num_threads(1)
    set_seed(0)
    LOG.setLevel(logging.ERROR)
    with np.load(path) as found:
        features, targets = torch.tensor(found["features"]), torch.tensor(found["targets"])
    data = DataDispatcher(ClassificationDataHandler(features, targets, test_size=0), nodes, eval_on_user=False)
    data.has_test = lambda: False  # nothing is evaluated meanwhile
    graph = networkx.random_regular_graph(degree, nodes, seed=0)
    handler = TorchModelHandler(
        net=LogisticRegression(features.shape[1], 2),
        optimizer=torch.optim.SGD,
        optimizer_params={"lr": rate},
        criterion=torch.nn.CrossEntropyLoss(),
        local_epochs=0,  # one step
        batch_size=batch,
        create_model_mode=CreateModelMode.MERGE_UPDATE,
    )
    made = GossipNode.generate(
        data_dispatcher=data,
        p2p_net=StaticP2PNetwork(nodes, networkx.to_numpy_array(graph)),
        model_proto=handler,
        round_len=ROUND,
        sync=False,
    )
    simulator = GossipSimulator(made, data, ROUND, AntiEntropyProtocol.PUSH)
    report = SimulationReport()
    simulator.add_receiver(report)
    simulator.init_nodes(0)
    start = time.process_time()
    simulator.start(updates)
    seconds = time.process_time() - start
    print(json.dumps({"us_per_update": round(seconds / report._sent_messages * 1e6, 2), "made": report._sent_messages}))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:6]), float(sys.argv[6]))
