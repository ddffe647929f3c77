"""An app of two clients on Flower's own server, of which one has a mod with a ledger; prints what the server saw of it.

Arguments are the policy, a folder for receipts, and where Python finds gossamer and what it imports.
"""

import json
import sys

import numpy as np
from by_flower import InProcess
from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

POLICY, FOLDER, *PLACES = sys.argv[1:]
sys.path.extend(PLACES)  # behind its own, which Flower needs
import gossamer as gs  # noqa: E402

LEDGER = gs.LoopLedger(POLICY, "flower", gs.Releases(3, noise_multiplier=4.0), clip=0.5)
GUARDED, PLAIN = ClientApp(mods=[gs.FlowerMod(LEDGER, noise_multiplier=4.0)]), ClientApp()


def train(message, context):
    """The guarded client tells its loss as well; the mod takes it away, and a strategy takes alike ones alone."""
    guarded = context.node_config["partition-id"] == 0
    w = message.content["arrays"]["w"].numpy() + (100 if guarded else 0)
    arrays = ArrayRecord({"w": Array(w), "seen": Array(np.array(48))})
    metrics = MetricRecord({"num-examples": 48, **({"train_loss": 0.25} if guarded else {})})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def client(message, context):
    """As a SuperNode does, what is raised is an answer."""
    try:
        return (GUARDED if message.metadata.dst_node_id == 1 else PLAIN)(message, context)
    except Exception as error:
        return Message(Error(0, str(error)), reply_to=message)


class Seen(InProcess):
    answers: list = []  # noqa: RUF012

    def send_and_receive(self, messages, *, timeout=None):
        asked = [message.metadata.message_type for message in messages]
        replies = [self.client(message, self.contexts[message.metadata.dst_node_id]) for message in messages]
        for kind, reply in zip(asked, replies, strict=True):
            if reply.metadata.src_node_id == 1:
                told = {"kind": kind, "error": reply.error.reason if reply.has_error() else None}
                if not reply.has_error():
                    told["metrics"] = dict(reply.content["metrics"])
                    told |= {name: array.numpy().tolist() for name, array in reply.content["arrays"].items()}
                self.answers.append(told)
        return replies


GUARDED.train()(train)
GUARDED.evaluate()(train)
PLAIN.train()(train)
contexts = {node: Context(0, node, {"partition-id": node - 1}, RecordDict(), {}) for node in (1, 2)}
start = ArrayRecord({"w": Array(np.zeros(40, np.float32)), "seen": Array(np.array(0))})
strategy = FedAvg(fraction_train=1.0, fraction_evaluate=1.0, min_train_nodes=2, min_available_nodes=2)
grid = Seen(client, contexts)
strategy.start(grid=grid, initial_arrays=start, num_rounds=4)
LEDGER.write(FOLDER)
print(json.dumps({"answers": grid.answers, "releases": LEDGER.releases}))
