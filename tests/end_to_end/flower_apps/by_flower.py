"""An app by Flower's own ServerApp and strategy, with messages handed over in this process in the place of Ray's.

Prints the accuracy that clients found in the last evaluation, by their numbers of examples.
"""

import sys
import tomllib
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

from flwr.app import Context, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1


class InProcess(Grid):
    """Clients of one process."""

    run = SimpleNamespace(run_id=0)

    def __init__(self, client, contexts):
        self.client, self.contexts, self.tested = client, contexts, {}

    def set_run(self, run):
        pass

    def create_message(self, *args, **kwargs):
        raise NotImplementedError

    pull_messages = push_messages = create_message

    def get_node_ids(self):
        return list(self.contexts)

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            replies.append(self.client(message, self.contexts[node]))
            if message.metadata.message_type == "evaluate":
                records = replies[-1].content.metric_records.values()
                records = [*records, *replies[-1].content.config_records.values()]
                self.tested[node] = {key: value for record in records for key, value in record.items()}
        return replies


def named(reference):
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def main(reference, partitions):
    config, folder = {}, Path(reference)
    if folder.is_dir():
        told = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
        client, server, config = told["components"]["clientapp"], told["components"]["serverapp"], told["config"]
    else:
        folder, client, server = folder.parent, f"{folder.stem}:app", f"{folder.stem}:server"
    sys.path.insert(0, str(folder))
    nodes = [{"partition-id": number, "num-partitions": partitions} for number in range(partitions)]
    contexts = {1 + n: Context(0, 1 + n, node, RecordDict(), dict(config)) for n, node in enumerate(nodes)}
    grid = InProcess(named(client), contexts)
    named(server)(grid, Context(0, 0, {}, RecordDict(), dict(config)))
    counts = [next(tested[key] for key in tested if "examples" in key) for tested in grid.tested.values()]
    right = [next(tested[key] for key in tested if "acc" in key) for tested in grid.tested.values()]
    print("accuracy", sum(c * r for c, r in zip(counts, right, strict=True)) / sum(counts), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
